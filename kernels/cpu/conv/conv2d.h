#pragma once
#include "core/view.h"
#include "kernels/conv2d_norm.h"
#include "kernels/cpu/vector/by_unit.h"
#include "kernels/cpu/vector/isa.h"
#include "kernels/window.h"

RT_ISA_BEGIN

// The sizes of a convolution: x (n, h, w, c), weights (k, r, s, cg), y (n, ho, wo, k);
// cg and kg are the channels of a group.
struct ConvSizes {
  int64_t n, h, w, c, ho, wo, k, r, s, cg, groups, kg;
  ConvSizes(const View& y, const View& x, const View& wt)
      : n(x.dims[0]), h(x.dims[1]), w(x.dims[2]), c(x.dims[3]), ho(y.dims[1]), wo(y.dims[2]), k(wt.dims[0]),
        r(wt.dims[1]), s(wt.dims[2]), cg(wt.dims[3]), groups(c / cg), kg(k / groups) {}
  int64_t taps() const { return r * s; }
  int64_t pixels() const { return n * ho * wo; }
};

enum class Algorithm { direct, depthwise, winograd, winograd_bf16, amx };
Algorithm algorithm_for(const ConvSizes& sizes, const Window& window, DType of_x);

// Implementations of kernels/conv2d.h. The direct ones accept everything, the depthwise ones only one input and one
// output channel per group.
void direct_forward(View y, View x, View w, View b, Window window);
void direct_backward_data(View dx, View dy, View w, Window window);
void direct_backward_weights(View dw, View dy, View x, Window window);

void depthwise_forward(View y, View x, View w, View b, Window window);
void depthwise_backward_data(View dx, View dy, View w, Window window);
void depthwise_backward_weights(View dw, View dy, View x, Window window);

// Winograd's F(4x4, 3x3), where it applies; not for f64. x may be normalised where it is read.
inline bool winograd_applies(const ConvSizes& z, const Window& p) {
  return z.r == 3 && z.s == 3 && p.stride_h == 1 && p.stride_w == 1 && p.dilation_h == 1 && p.dilation_w == 1 &&
         p.pad_h <= 2 && p.pad_w <= 2 && z.groups == 1;
}
void winograd_forward(View y, View x, View w, View b, Window window, PixelNorm of_x);
void winograd_backward_data(View dx, View dy, View w, Window window);
void winograd_backward_weights(View dw, View dy, View x, Window window, PixelNorm of_x);

// The same for bf16 with operands of the products in bf16, by AVX512-BF16: F(2x4, 3x3) forward, which has less error,
// and F(4x4, 3x3) backward.
RT_BY_UNIT(winograd_bf16_forward, void(View y, View x, View w, View b, Window window, PixelNorm of_x));
RT_BY_UNIT(winograd_bf16_backward_data, void(View dx, View dy, View w, Window window));
RT_BY_UNIT(winograd_bf16_backward_weights, void(View dw, View dy, View x, Window window, PixelNorm of_x));

// bf16 by AMX; windows of at most kMaxAmxTaps rows. x may be normalised where it is read if each pixel's channels are
// tiles of their own, and all in one group.
bool amx_normalizes(const ConvSizes& sizes, const Window& window);
inline constexpr int64_t kMaxAmxTaps = 64;
RT_BY_UNIT(amx_forward, void(View y, View x, View w, View b, Window window, PixelNorm of_x));
RT_BY_UNIT(amx_backward_data, void(View dx, View dy, View w, Window window));
RT_BY_UNIT(amx_backward_weights, void(View dw, View dy, View x, Window window, PixelNorm of_x));

RT_ISA_END
