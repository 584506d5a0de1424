#include "kernels/conv_norm.h"

#include <algorithm>

#include "kernels/arithmetic.h"
#include "kernels/binary.h"
#include "kernels/copy.h"

namespace ringtape {

namespace {

thread_local AskedBlocks* asking = nullptr;

bool can_fuse(Device device, DType dtype, int64_t c, int64_t k) {
  const bool multiplied = dtype == DType::bf16 || dtype == DType::f16 || (dtype == DType::f32 && arithmetic().tf32);
  return device.type == DeviceType::cuda && multiplied && (c | k) % kFusedChannels == 0 &&
         cuda::can_fuse(device.index, std::max(c, k));
}
bool fuses(const Tensor& x, const Tensor& w) {  // w (K, R, S, C)
  return arithmetic().fusing != Fusing::never && can_fuse(x.device(), x.dtype(), w.dim(3), w.dim(0));
}

Tensor normalized(const NormOperand& x, View mask = {}) {
  if (!x.mean.defined()) return x.raw;
  const Tensor y(x.raw.shape(), x.raw.dtype(), x.raw.device());
  batch_norm_forward(y, mask, x.raw, {}, x.mean, x.var, x.w, x.b, x.eps, Activation::relu);
  return y;
}

}  // namespace

AskedBlocks::AskedBlocks() : before_(asking) { asking = this; }
AskedBlocks::~AskedBlocks() { asking = before_; }

bool prefers_fused(const BlockShape& block) {
  if (!can_fuse(block.device, block.dtype, block.w[3], block.w[0])) return false;
  if (asking && std::ranges::find(asking->blocks, block) == asking->blocks.end()) asking->blocks.push_back(block);
  const Fusing fusing = arithmetic().fusing;
  return fusing == Fusing::always || (fusing == Fusing::where_faster && cuda::prefers_fused(block));
}

void keep_fused(const BlockShape& block, bool value) { cuda::keep_fused(block, value); }

void conv_norm_forward(const Tensor& y, const Tensor& mean, const Tensor& var, const NormOperand& x, const Tensor& w,
                       const Window& window, const RunningUpdate& running) {
  if (fuses(y, w) && cuda::fused_forward(y, mean, var, x, w, window, running)) return;
  conv2d_forward(y, normalized(x), w, {}, window);
  batch_norm_statistics(mean, var, y, running);
}

void conv_norm_backward_data(const Tensor& dx, const Tensor& db, const Tensor& dw, const Tensor& dy, const Tensor& w,
                             const NormOperand& x, const Tensor& skip, const Window& window) {
  if (fuses(dx, w) && cuda::fused_backward_data(dx, db, dw, dy, w, x, skip, window)) return;
  conv2d_backward_data(dx, dy, w, window);
  if (x.mean.defined()) {
    const Tensor mask({batch_norm_mask_bytes(dx.size())}, DType::u8, dx.device());
    normalized(x, mask);
    batch_norm_backward_sums(db, dw, dx, mask, x.raw, x.mean, x.var, x.eps);
    batch_norm_backward(dx, {}, dx, mask, x.raw, x.mean, x.var, x.w, db, dw, dx.size() / dx.dim(-1), x.eps);
  }
  if (skip.defined()) add_forward(dx, dx, skip);
}

void conv_norm_backward_weights(const Tensor& dw, const Tensor& dy, const NormOperand& x, const Window& window) {
  if (fuses(x.raw, dw) && cuda::fused_backward_weights(dw, dy, x, window)) return;
  const DType dtype = x.raw.dtype();
  const bool direct = dw.dtype() == dtype || dw.device().type == DeviceType::cpu;
  const Tensor own = direct ? dw : Tensor(dw.shape(), dtype, dw.device());
  conv2d_backward_weights(own, dy, normalized(x), window);
  if (!direct) copy(dw, own);
}

}  // namespace ringtape
