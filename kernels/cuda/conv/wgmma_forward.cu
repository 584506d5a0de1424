#include "kernels/cuda/conv/wgmma_image.cuh"

// y = the convolution of a normalised image, with the moments of y.
namespace ringtape::cuda {
namespace {

// Of a channel, around its first value, so that little is lost by differences.
template <class T> struct WithMoments {
  using Part = MomentsPart;
  static constexpr ResultUses kUses{.transposed = false, .second_image = false, .norm = false};
  float pivot = 0, sum = 0, squares = 0;
  __device__ WithMoments(const float*, int, int) {}
  __device__ __forceinline__ void begin(float x) { pivot = x; }
  __device__ __forceinline__ uint32_t put(const Vec<float, 2>& x, uint32_t, bool there) {
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const float d = there ? x.x[e] - pivot : 0;
      sum += d, squares += d * d;
    }
    return pack<T>(x.x[0], x.x[1]);
  }
  __device__ Part leave(int places) const {
    const auto count = float(places);
    const float all = warp_reduce<Sum>(sum, 4), all_squares = warp_reduce<Sum>(squares, 4), mean = all / count;
    if (places == 0) return {{0, 0, 0}};
    const float rest = all_squares - all * mean;
    return {{count, pivot + mean, rest < 0 ? 0 : rest}};
  }
};

}  // namespace

std::optional<ConvParts> wgmma_forward(View y, const NormOperand& x, View w, const Window& window) {
  const View raw(x.raw);
  if (aligned_width(kWgmmaPack, y.as<bf16>(), raw.as<bf16>(), w.as<bf16>()) == 1 ||
      !wgmma_claims(y.device.index, y.dtype, raw.shape(), w.shape(), window))
    return {};
  const auto run = [&]<class F>() { return run_wgmma_image<F>(y, raw, w, {}, x); };
  return x.mean.defined() ? dispatch_image<WithMoments, true>(y, run) : dispatch_image<WithMoments, false>(y, run);
}

}  // namespace ringtape::cuda
