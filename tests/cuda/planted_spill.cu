// A convolution by wgmma whose results keep more numbers than a thread has registers: tests/cuda/sass.py --check must
// refuse it.
#include "kernels/cuda/conv/wgmma_image.cuh"

namespace ringtape::cuda {
namespace {

struct Hoard {
  using Part = float;
  static constexpr ResultUses kUses{.transposed = false, .second_image = false, .norm = false};
  float kept[32] = {};
  __device__ Hoard(const float*, int, int) {}
  __device__ void begin(float) {}
  __device__ uint32_t put(const Vec<float, 2>& x, uint32_t, bool) {
    for (float& k : kept) k = k * x.x[0] + x.x[1];
    return pack<bf16>(x.x[0], x.x[1]);
  }
  __device__ Part leave(int) const {
    float all = 0;
    for (const float k : kept) all = all * all + k;
    return all;
  }
};

using Planted = ImageConv<bf16, 16, 64, Hoard, false>;
template __global__ void wgmma_image_kernel<Planted>(const __grid_constant__ Maps, const bf16*, ImageNorm, float*, int,
                                                     int, int);

}  // namespace
}  // namespace ringtape::cuda
