#pragma once
#include <algorithm>
#include <chrono>

namespace ringtape::comm {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

// The moment at which a wait ends.
class Deadline {
 public:
  explicit Deadline(Seconds from_now)
      : at_(Clock::now() + std::chrono::duration_cast<Clock::duration>(std::min(from_now, Seconds(1e8)))) {}
  bool passed() const { return Clock::now() >= at_; }
  Seconds left() const { return std::max(Seconds(0), Seconds(at_ - Clock::now())); }
  int left_ms() const { return int(std::min(left().count() * 1e3 + 0.5, 1e9)); }  // for poll()
  Clock::time_point at() const { return at_; }

 private:
  Clock::time_point at_;
};

}  // namespace ringtape::comm
