#pragma once
#include <optional>
#include <vector>

#include "core/tensor.h"
#include "kernels/batch_norm.h"
#include "kernels/conv2d.h"

// Convolutions with the batch normalisation before and after them, as in a residual block: what lies between is not
// written to memory where one kernel can do both (below), else these are the calls of kernels/conv2d.h and
// kernels/batch_norm.h one after the other. Layouts and dtypes are those of both; convolutions have one group and no
// bias. What is fused rounds the same numbers in the same places; only sums per channel are added in another order.
namespace ringtape {

// An image: relu((raw - mean) w / sqrt(var + eps) + b). Without mean: raw as it is.
struct NormOperand {
  Tensor raw, mean = {}, var = {}, w = {}, b = {};
  double eps = 0;
};

// y = the convolution of x by w; mean and var: those of y, which update `running`. `wgmma`: by Hopper's own
// instructions where there is such a kernel, whose sums of a convolution have another order.
void conv_norm_forward(const Tensor& y, const Tensor& mean, const Tensor& var, const NormOperand& x, const Tensor& w,
                       const Window& window, const RunningUpdate& running, bool wgmma = false);

// The gradients by dy of y: dx of x.raw, db and dw of x.b and x.w. Of a plain x dx is its gradient + skip, which may be
// undefined; db and dw are not used.
void conv_norm_backward_data(const Tensor& dx, const Tensor& db, const Tensor& dw, const Tensor& dy, const Tensor& w,
                             const NormOperand& x, const Tensor& skip, const Window& window, bool wgmma = false);

// dw, of w's dtype or f32.
void conv_norm_backward_weights(const Tensor& dw, const Tensor& dy, const NormOperand& x, const Window& window,
                                bool wgmma = false);

// They are fused on GPUs with tensor cores, of images of 16 bits or, with Arithmetic::tf32, of f32, and of multiples of
// 32 channels whose values fit into shared memory (thousands), unless a tensor is empty or misaligned, or
// Arithmetic::fusing is never.
constexpr int64_t kFusedChannels = 32;

// A residual block in training: x (N, H, W, C), the first w (K, R, R, C).
struct BlockShape {
  Device device;
  DType dtype;
  Shape x, w;
  int64_t stride;
  bool operator==(const BlockShape&) const = default;
};
// How a block is computed: by these calls one by one, fused, or fused with wgmma where there are such kernels. As
// Arithmetic::fusing says, else as measured (keep_block_kernels), else one by one; with deterministic_convolutions as
// if nothing were measured.
enum class BlockKernels : uint8_t { one_by_one, fused, wgmma };
const char* name_of(BlockKernels kernels);
BlockKernels block_kernels(const BlockShape& block);
bool has_wgmma(const BlockShape& block);  // whether wgmma is another way than fused
// What a measurement found, for this process and, in the file of RINGTAPE_CONV_PLANS, for later ones; what it found
// before is forgotten. Of a block that can be fused.
void keep_block_kernels(const BlockShape& block, BlockKernels kernels);

// While it lives, notes the different blocks that can be fused and for which this thread asks block_kernels().
class AskedBlocks {
 public:
  AskedBlocks();
  ~AskedBlocks();
  AskedBlocks(const AskedBlocks&) = delete;
  AskedBlocks& operator=(const AskedBlocks&) = delete;
  std::vector<BlockShape> blocks;

 private:
  AskedBlocks* before_;
};

namespace cuda {
[[gnu::weak]] bool can_fuse(int gpu, int64_t channels);
[[gnu::weak]] BlockKernels block_kernels(const BlockShape& block);  // by measurement
[[gnu::weak]] void keep_block_kernels(const BlockShape& block, BlockKernels kernels);
[[gnu::weak]] bool wgmma_claims(int gpu, DType dtype, const Shape& x, const Shape& w, const Window& window);
// Whether it has been done; false, without any effect, if these operands cannot be fused.
[[gnu::weak]] bool fused_forward(View y, View mean, View var, const NormOperand& x, View w, const Window& window,
                                 const RunningUpdate& running, bool wgmma);
[[gnu::weak]] bool fused_backward_data(View dx, View db, View dw, View dy, View w, const NormOperand& x, View skip,
                                       const Window& window, bool wgmma);
[[gnu::weak]] bool fused_backward_weights(View dw, View dy, const NormOperand& x, const Window& window, bool wgmma);
}  // namespace cuda

}  // namespace ringtape
