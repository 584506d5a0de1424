#pragma once

namespace ringtape::emulation {

// While one lives, a fault in a kernel (a wild pointer, a full stack, an integer division by zero) is reported and ends the
// grid instead of the process. Faults of the host stay what they were.
class FaultHandler {
 public:
  FaultHandler();
};

}  // namespace ringtape::emulation
