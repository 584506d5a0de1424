#pragma once
#include <cstdint>

namespace ringtape {

// The parts of a step that are timed.
enum class StepPhase : uint8_t { forward, backward, optimizer };

}  // namespace ringtape
