#pragma once

namespace ringtape::emulation {

// While it lives, a fault in a kernel (a wild pointer, a stack overflow, an integer division by zero) is reported and
// ends the grid instead of the process. Faults of the host are not affected.
class FaultHandler {
 public:
  FaultHandler();
};

}  // namespace ringtape::emulation
