#pragma once
#include <cstdint>
#include <span>

// The softmax of rows in CUDA, in steps from the plainest kernel to the project's own (docs/kernels.md).
namespace ringtape::ladder {

struct Step {
  const char* name;
  void (*run)(const float* x, float* y, int64_t rows, int64_t columns);  // contiguous, on the first GPU; does not wait
};
std::span<const Step> softmax_steps();

}  // namespace ringtape::ladder
