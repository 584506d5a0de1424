#pragma once

namespace ringtape {

// While one lives, the first SIGTERM or SIGINT is a wish to stop, which the training asks for and follows; a second one ends the
// process as it always does.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;
};
bool stop_requested();

}  // namespace ringtape
