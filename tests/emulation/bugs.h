#pragma once
#include <span>

// Kernels that are wrong on purpose, and kernels that are right in ways that might look wrong. Each is told apart by a name; the
// line of the mistake carries the comment "BUG: name".
namespace ringtape::emulation_bugs {

inline constexpr int kSize = 512;   // floats in x and y

struct Case {
  const char* name;
  void (*run)(float* x, float* y);  // x: i % 7 + 1; y: uninitialised, in device memory; returns when the kernel is over
  float (*expected)(int i);         // of y, if the kernel were right; null: nothing to compare
};
std::span<const Case> bugs();
std::span<const Case> correct();

}  // namespace ringtape::emulation_bugs
