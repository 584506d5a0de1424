#include "kernels/mix.h"

#include "kernels/cuda/vector.cuh"

namespace ringtape::cuda {
namespace {

constexpr int kThreads = 256;

// A block mixes one row of an image at a time.
__global__ void __launch_bounds__(kThreads)
    mix_kernel(float* y, const float* x, int64_t rows, int64_t height, int64_t width, int64_t channels, Mixture m) {
  const int64_t row_elements = width * channels;
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const float *other = x + row * row_elements, *own = other + height * row_elements;
    const int64_t at = row % height - m.part.top;
    const bool crossed = at >= 0 && at < m.part.height;
    for (int64_t i = threadIdx.x; i < row_elements; i += kThreads) {
      const int64_t column = i / channels - m.part.left;
      const bool replaced = crossed && column >= 0 && column < m.part.width;
      y[row * row_elements + i] = replaced ? other[i] : m.share == 1 ? own[i] : mixed(own[i], other[i], m.share);
    }
  }
}

}  // namespace

void mix(View y, View x, Mixture mixture) {
  if (y.size() == 0) return;
  const int64_t rows = y.dims[0] * y.dims[1];
  launch<mix_kernel>(y.device, covering(y.device, rows * kThreads, kThreads), y.as<float>(), x.as<float>(), rows,
                     y.dims[1], y.dims[2], y.dims[3], mixture);
}

}  // namespace ringtape::cuda
