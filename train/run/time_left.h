#pragma once
#include <chrono>
#include <cstdint>

namespace ringtape {

// How long the rest of `total` steps will take, by how long those behind the first `from` have taken.
class TimeLeft {
 public:
  TimeLeft(int64_t from, int64_t total) : from_(from), total_(total) {}
  // In seconds, with `done` steps taken; 0 until there is one to go by.
  double seconds(int64_t done) const {
    const std::chrono::duration<double> passed = Clock::now() - begin_;
    return done > from_ ? passed.count() / double(done - from_) * double(total_ - done) : 0;
  }

 private:
  using Clock = std::chrono::steady_clock;
  int64_t from_, total_;
  Clock::time_point begin_ = Clock::now();
};
inline bool worth_telling(double seconds_left) { return seconds_left >= 60; }

}  // namespace ringtape
