#pragma once
#include <string>
#include <utility>
#include <vector>

namespace ringtape::cuda {

// The names and versions of CUDA's runtime, its driver (the CUDA that it supports, and its own number) and of the
// libraries that this build's kernels use. "cuDNN" is "own kernels" without it, as with RINGTAPE_CUDNN=0; cuBLASLt
// likewise.
[[gnu::weak]] std::vector<std::pair<std::string, std::string>> libraries();  // a build without CUDA has none

// Whether the tensor cores of a GPU multiply bf16: from compute capability 8.0 on. Throws DeviceError as
// cuda::properties().
[[gnu::weak]] bool multiplies_bf16(int gpu);

}  // namespace ringtape::cuda
