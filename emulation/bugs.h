#pragma once
#include <span>

// Kernels that are wrong on purpose, and correct kernels that might look wrong. Each has a name; the line of the
// mistake has the comment "BUG: name".
namespace ringtape::emulation_bugs {

inline constexpr int kSize = 512;  // floats in x and y

struct Case {
  const char* name;
  void (*run)(float* x, float* y);  // x: i % 7 + 1; y: uninitialised, in device memory; returns after the kernel
  float (*expected)(int i);         // y[i] of a correct kernel; null: nothing to compare
};
std::span<const Case> bugs();
std::span<const Case> correct();

// y[i] = x[i * stride] by one warp, with counted accesses, a barrier and a shuffle; if `uneven`, half of the lanes read
// twice.
void run_counted(const float* x, float* y, int stride, bool uneven);
// One warp loads four matrices whose rows are `pitch` bytes apart by ldmatrix, then its lanes load a row each.
void run_reads_rows(float* y, int pitch);

}  // namespace ringtape::emulation_bugs
