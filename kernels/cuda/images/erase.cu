#include "kernels/erase.h"

#include "kernels/cuda/vector.cuh"

namespace ringtape::cuda {
namespace {

constexpr int kThreads = 256;

// A block erases the part of an image.
__device__ void erase_part(float* y, const Rectangle& part, int64_t height, int64_t width, int64_t channels) {
  const int64_t elements = part.height * part.width * channels;
  for (int64_t i = threadIdx.x; i < elements; i += kThreads) {
    const int64_t pixel = i / channels, row = part.top + pixel / part.width, column = part.left + pixel % part.width;
    const bool inside = row >= 0 && row < height && column >= 0 && column < width;
    if (inside) y[(row * width + column) * channels + i % channels] = 0;
  }
}

__global__ void __launch_bounds__(kThreads) erase_kernel(float* y, const int64_t* index, int64_t batch, int64_t height,
                                                         int64_t width, int64_t channels, EraseParams p) {
  for (int64_t b = blockIdx.x; b < batch; b += gridDim.x) {
    float* const image = y + b * height * width * channels;
    erase_part(image, draw_erased(p, index[b], height, width), height, width, channels);
    __syncthreads();  // the two parts may overlap
    erase_part(image, draw_cutout(p, index[b], height, width), height, width, channels);
  }
}

}  // namespace

void erase(View y, View index, EraseParams params) {
  if (y.size() == 0) return;
  launch<erase_kernel>(y.device, covering(y.device, y.dims[0] * kThreads, kThreads), y.as<float>(), index.as<int64_t>(),
                       y.dims[0], y.dims[1], y.dims[2], y.dims[3], params);
}

}  // namespace ringtape::cuda
