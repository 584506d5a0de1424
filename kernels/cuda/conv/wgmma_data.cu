#include "kernels/cuda/conv/wgmma_image.cuh"

// dx, the gradient of a convolution's image: + that of what skips it, or that before a ReLU and its normalisation, with
// the sums for these.
namespace ringtape::cuda {
namespace {

template <class T> struct Skipped {
  using Part = void;
  static constexpr ResultUses kUses{.transposed = true, .second_image = true, .norm = false};
  __device__ Skipped(const float*, int, int) {}
  __device__ __forceinline__ void begin(float) {}
  __device__ __forceinline__ uint32_t put(const Vec<float, 2>& x, uint32_t skip, bool) {
    const Vec<float, 2> added = unpack<T>(skip);
    return pack<T>(x.x[0] + added.x[0], x.x[1] + added.x[1]);
  }
};

template <class T> struct Gated {
  using Part = GradientSums;
  static constexpr ResultUses kUses{.transposed = true, .second_image = true, .norm = true};
  Normalize<float> of;
  GradientSums sums = {0, 0};
  __device__ Gated(const float* norm, int channels, int c) : of{norm[c], norm[channels + c], norm[2 * channels + c]} {}
  __device__ __forceinline__ void begin(float) {}
  __device__ __forceinline__ uint32_t put(Vec<float, 2> x, uint32_t raw, bool there) {
    const Vec<float, 2> by = unpack<T>(raw);
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      if (!(of(by.x[e]) > 0 && there)) x.x[e] = 0;
      sums.db += x.x[e], sums.dw += x.x[e] * (by.x[e] - of.mean);
    }
    return pack<T>(x.x[0], x.x[1]);
  }
  __device__ Part leave(int) const { return {warp_reduce<Sum>(sums.db, 4), warp_reduce<Sum>(sums.dw, 4)}; }
};

}  // namespace

std::optional<ConvParts> wgmma_data(View dx, View dy, View w, const NormOperand& x, View skip, const Window& window) {
  const bool gated = x.mean.defined();
  const View beside = gated ? View(x.raw) : skip;
  if (!beside.data || aligned_width(kWgmmaPack, dx.as<bf16>(), dy.as<bf16>(), w.as<bf16>(), beside.as<bf16>()) == 1 ||
      !wgmma_claims(dx.device.index, dx.dtype, dx.shape(), w.shape(), window))
    return {};
  const auto run = [&]<class F>() { return run_wgmma_image<F>(dx, dy, w, beside, x); };
  return gated ? dispatch_image<Gated, false>(dx, run) : dispatch_image<Skipped, false>(dx, run);
}

}  // namespace ringtape::cuda
