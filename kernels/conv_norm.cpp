#include "kernels/conv_norm.h"

#include <atomic>
#include <optional>

#include "kernels/binary.h"
#include "kernels/copy.h"

namespace ringtape {

namespace {

enum class Fused : uint8_t { by_device, never, always };
std::atomic<Fused> fused{Fused::by_device};

Tensor normalized(const NormOperand& x, View mask = {}) {
  if (!x.mean.defined()) return x.raw;
  const Tensor y(x.raw.shape(), x.raw.dtype(), x.raw.device());
  batch_norm_forward(y, mask, x.raw, {}, x.mean, x.var, x.w, x.b, x.eps, Activation::relu);
  return y;
}

Tensor gradient(const NormGradient& dy) {
  const Tensor d(dy.raw.shape(), dy.raw.dtype(), dy.raw.device());
  batch_norm_backward(d, {}, dy.dz, {}, dy.raw, dy.mean, dy.var, dy.w, dy.db, dy.dw, dy.raw.size() / dy.raw.dim(-1),
                      dy.eps);
  return d;
}

}  // namespace

void set_fused_convolutions(bool value) { fused = value ? Fused::always : Fused::never; }

bool fuses_convolutions(Device device, DType dtype, int64_t c, int64_t k) {
  if (device.type != DeviceType::cuda || fused == Fused::never) return false;
  if ((dtype != DType::bf16 && dtype != DType::f16) || (c | k) % cuda::kFusedChannels != 0) return false;
  return fused == Fused::always || cuda::fuses_convolutions(device.index);
}

// Of w (K, R, S, C).
static bool fuses(const Tensor& x, const Tensor& w) {
  return fuses_convolutions(x.device(), x.dtype(), w.dim(3), w.dim(0));
}

void conv_norm_forward(const Tensor& y, const Tensor& mean, const Tensor& var, const NormOperand& x, const Tensor& w,
                       const Window& window, const RunningUpdate& running) {
  if (fuses(y, w) && cuda::fused_forward(y, mean, var, x, w, window, running)) return;
  conv2d_forward(y, normalized(x), w, {}, window);
  batch_norm_statistics(mean, var, y, running);
}

void conv_norm_backward_data(const Tensor& dx, const Tensor& db, const Tensor& dw, const NormGradient& dy,
                             const Tensor& w, const NormOperand& x, const Tensor& skip, const Window& window) {
  if (fuses(dx, w) && cuda::fused_backward_data(dx, db, dw, dy, w, x, skip, window))
    return;
  conv2d_backward_data(dx, gradient(dy), w, window);
  if (x.mean.defined()) {
    const Tensor mask({batch_norm_mask_bytes(dx.size())}, DType::u8, dx.device());
    normalized(x, mask);
    batch_norm_backward_sums(db, dw, dx, dx, mask, x.raw, x.mean, x.var, x.eps);
  }
  if (skip.defined()) add_forward(dx, dx, skip);
}

void conv_norm_backward_weights(const Tensor& dw, const NormGradient& dy, const NormOperand& x, const Window& window) {
  if (fuses(x.raw, dw) && cuda::fused_backward_weights(dw, dy, x, window)) return;
  const DType dtype = x.raw.dtype();
  const bool direct = dw.dtype() == dtype || dw.device().type == DeviceType::cpu;
  const Tensor own = direct ? dw : Tensor(dw.shape(), dtype, dw.device());
  conv2d_backward_weights(own, gradient(dy), normalized(x), window);
  if (!direct) copy(dw, own);
}

}  // namespace ringtape
