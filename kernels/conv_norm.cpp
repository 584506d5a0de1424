#include "kernels/conv_norm.h"

#include <algorithm>

#include "kernels/arithmetic.h"
#include "kernels/binary.h"
#include "kernels/conv2d_norm.h"
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

bool on_cpu(const NormOperand& x) { return x.raw.device().type == DeviceType::cpu; }

PixelNorm pixel_norm(const NormOperand& x) { return {x.mean, x.var, x.w, x.b, x.eps}; }

Tensor normalized(const NormOperand& x, View mask = {}) {
  if (!x.mean.defined()) return x.raw;
  const Tensor y = empty_like(x.raw);
  batch_norm_forward(y, mask, x.raw, {}, x.mean, x.var, x.w, x.b, x.eps, Activation::relu);
  return y;
}

// Where it is above 0.
Tensor mask_of(const NormOperand& x) {
  const Tensor mask({batch_norm_mask_bytes(x.raw.size())}, DType::u8, x.raw.device());
  if (!on_cpu(x)) normalized(x, mask);
  else
    batch_norm_forward({.device = x.raw.device()}, mask, x.raw, {}, x.mean, x.var, x.w, x.b, x.eps, Activation::relu);
  return mask;
}

}  // namespace

AskedBlocks::AskedBlocks() : before_(asking) { asking = this; }
AskedBlocks::~AskedBlocks() { asking = before_; }

const char* name_of(BlockKernels kernels) {
  constexpr const char* names[] = {"one by one", "fused", "fused, wgmma"};
  return names[size_t(kernels)];
}

BlockKernels block_kernels(const BlockShape& block) {
  if (!can_fuse(block.device, block.dtype, block.w[3], block.w[0])) return BlockKernels::one_by_one;
  if (asking && std::ranges::find(asking->blocks, block) == asking->blocks.end()) asking->blocks.push_back(block);
  switch (arithmetic().fusing) {
    case Fusing::never: return BlockKernels::one_by_one;
    case Fusing::always: return BlockKernels::fused;
    case Fusing::with_wgmma: return BlockKernels::wgmma;
    default: return cuda::block_kernels(block);
  }
}

bool has_wgmma(const BlockShape& block) {
  if (!can_fuse(block.device, block.dtype, block.w[3], block.w[0])) return false;
  const Shape &x = block.x, &w = block.w;
  const Window first = square_window(block.stride, w[1] / 2), second = square_window(1, w[1] / 2);
  const Shape between = {x[0], first.rows(x[1], w[1]), first.columns(x[2], w[1]), w[0]};
  return cuda::wgmma_claims(block.device.index, block.dtype, x, w, first) ||
         cuda::wgmma_claims(block.device.index, block.dtype, between, {w[0], w[1], w[1], w[0]}, second);
}

void keep_block_kernels(const BlockShape& block, BlockKernels kernels) { cuda::keep_block_kernels(block, kernels); }

void conv_norm_forward(const Tensor& y, const Tensor& mean, const Tensor& var, const NormOperand& x, const Tensor& w,
                       const Window& window, const RunningUpdate& running, bool wgmma) {
  if (fuses(y, w) && cuda::fused_forward(y, mean, var, x, w, window, running, wgmma)) return;
  if (on_cpu(x) && x.mean.defined()) conv2d_norm_forward(y, x.raw, pixel_norm(x), w, window);
  else conv2d_forward(y, normalized(x), w, {}, window);
  batch_norm_statistics(mean, var, y, running);
}

void conv_norm_backward_data(const Tensor& dx, const Tensor& db, const Tensor& dw, const Tensor& dy, const Tensor& w,
                             const NormOperand& x, const Tensor& skip, const Window& window, bool wgmma) {
  if (fuses(dx, w) && cuda::fused_backward_data(dx, db, dw, dy, w, x, skip, window, wgmma)) return;
  conv2d_backward_data(dx, dy, w, window);
  if (x.mean.defined()) {
    const Tensor mask = mask_of(x);
    batch_norm_backward_sums(db, dw, dx, mask, x.raw, x.mean, x.var, x.eps);
    batch_norm_backward(dx, {}, dx, mask, x.raw, x.mean, x.var, x.w, db, dw, dx.size() / dx.dim(-1), x.eps);
  }
  if (skip.defined()) add_forward(dx, dx, skip);
}

void conv_norm_backward_weights(const Tensor& dw, const Tensor& dy, const NormOperand& x, const Window& window,
                                bool wgmma) {
  if (fuses(x.raw, dw) && cuda::fused_backward_weights(dw, dy, x, window, wgmma)) return;
  if (on_cpu(x) && x.mean.defined()) return conv2d_norm_backward_weights(dw, dy, x.raw, pixel_norm(x), window);
  const DType dtype = x.raw.dtype();
  const bool direct = dw.dtype() == dtype || on_cpu(x);
  const Tensor own = direct ? dw : Tensor(dw.shape(), dtype, dw.device());
  conv2d_backward_weights(own, dy, normalized(x), window);
  if (!direct) copy(dw, own);
}

}  // namespace ringtape
