#pragma once

namespace ringtape {

// While one lives, the first SIGTERM or SIGINT is a wish to stop, which the training asks for and follows; one that comes a second
// later, or after that, ends the process as it always does. Sooner it is the same wish: a scheduler and a launcher both tell each rank.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;
};
bool stop_requested();

}  // namespace ringtape
