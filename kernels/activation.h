#pragma once
#include <cstdint>

namespace ringtape {

// What a fully connected layer or a batch normalisation does to its results.
enum class Activation : uint8_t { none, relu };

}  // namespace ringtape
