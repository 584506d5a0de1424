#pragma once
#include <chrono>
#include <cstdint>

namespace ringtape {

// Estimates the remaining time of `total` steps from the time of the steps after the first `from`.
class TimeLeft {
 public:
  TimeLeft(int64_t from, int64_t total) : from_(from), total_(total) {}
  // In seconds, after `done` steps; 0 before the first step.
  double seconds(int64_t done) const {
    return done > from_ ? passed() / double(done - from_) * double(total_ - done) : 0;
  }
  double passed() const { return std::chrono::duration<double>(Clock::now() - begin_).count(); }  // seconds

 private:
  using Clock = std::chrono::steady_clock;
  int64_t from_, total_;
  Clock::time_point begin_ = Clock::now();
};
inline bool worth_telling(double seconds_left) { return seconds_left >= 60; }

}  // namespace ringtape
