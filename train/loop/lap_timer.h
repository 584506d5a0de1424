#pragma once
#include <chrono>
#include <utility>

namespace ringtape {

// Seconds since construction or the last lap().
class LapTimer {
 public:
  double lap() {
    const auto now = Clock::now();
    return std::chrono::duration<double>(now - std::exchange(at_, now)).count();
  }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point at_ = Clock::now();
};

}  // namespace ringtape
