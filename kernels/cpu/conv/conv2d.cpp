#include "kernels/conv2d.h"

#include <algorithm>

#include "core/tensor.h"
#include "kernels/arithmetic.h"
#include "kernels/bf16_unit.h"
#include "kernels/binary.h"
#include "kernels/copy.h"
#include "kernels/cpu/conv/amx_tiles.h"
#include "kernels/cpu/conv/conv2d.h"
#include "kernels/cpu/vector/isa.h"
#include "kernels/cpu/vector/scratch.h"

RT_ISA_BEGIN

namespace {

// A product takes 32 channels of 16 images, or parts of them, at once: not if more than seven eighths of it were zeros,
// nor if the tiles under a row of the window, which are used together, were far beyond a cache.
bool amx_pays(const ConvSizes& z, const Window& p) {
  const Axes axes = forward_axes(z, p);
  const bool folded = z.cg == z.c && folds(z.cg, axes);
  const int64_t depth = folded ? z.taps() * z.cg : z.cg;
  const AmxParts parts = amx_parts(z.n, folded ? folded_axis(axes.rows) : axes.rows, kAmxRows);
  const auto padded = [](int64_t x, int64_t block) { return ceil_div(x, block) * block; };
  const int64_t blocks = ceil_div(std::max(depth, z.kg), kAmxDepth), span = (z.r - 1) * p.dilation_h + 1;
  if (z.n * z.h * z.w * depth * z.kg == 0 || std::max(z.w, z.wo) * blocks * span * kAmxTile > 8 * kGathered)
    return false;
  return z.r <= kMaxAmxTaps && 8 * z.n * z.ho * depth * z.kg >= padded(z.n * parts.count, kAmxRows) * parts.rows *
                                                                    padded(depth, kAmxDepth) * padded(z.kg, kAmxPairs);
}

}  // namespace

// Winograd where it applies and is faster. With few channels the transforms cost more than they save, and the part of a
// tile outside the image is wasted.
Algorithm algorithm_for(const ConvSizes& z, const Window& p, DType dtype) {
  if (z.cg == 1 && z.kg == 1) return Algorithm::depthwise;
  if (dtype == DType::bf16 && bf16_choice().unit == Bf16Unit::amx && amx_pays(z, p)) return Algorithm::amx;
  const bool applies = winograd_applies(z, p) && dtype != DType::f64;
  const int64_t covered = (z.ho + 3) / 4 * ((z.wo + 3) / 4) * 16;
  const bool pays = z.c >= 16 && z.k >= 16 && 2 * z.ho * z.wo >= covered;
  if (!applies || !pays || arithmetic().exact_convolutions) return Algorithm::direct;
  const bool by_unit = dtype == DType::bf16 && bf16_choice().unit == Bf16Unit::avx512_bf16;
  return by_unit ? Algorithm::winograd_bf16 : Algorithm::winograd;
}

bool amx_normalizes(const ConvSizes& z, const Window& p) { return z.groups == 1 && !folds(z.cg, forward_axes(z, p)); }

void conv2d_forward(View y, View x, View w, View b, Window p) {
  switch (algorithm_for({y, x, w}, p, y.dtype)) {
    case Algorithm::direct: return direct_forward(y, x, w, b, p);
    case Algorithm::depthwise: return depthwise_forward(y, x, w, b, p);
    case Algorithm::winograd: return winograd_forward(y, x, w, b, p, {});
    case Algorithm::winograd_bf16: return winograd_bf16_forward(y, x, w, b, p, {});
    case Algorithm::amx: return amx_forward(y, x, w, b, p, {});
  }
}

void conv2d_backward_data(View dx, View dy, View w, Window p) {
  switch (algorithm_for({dy, dx, w}, p, dx.dtype)) {
    case Algorithm::direct: return direct_backward_data(dx, dy, w, p);
    case Algorithm::depthwise: return depthwise_backward_data(dx, dy, w, p);
    case Algorithm::winograd: return winograd_backward_data(dx, dy, w, p);
    case Algorithm::winograd_bf16: return winograd_bf16_backward_data(dx, dy, w, p);
    case Algorithm::amx: return amx_backward_data(dx, dy, w, p);
  }
}

void conv2d_add_backward_data(View dx, View dy, View w, Window p) {
  const Tensor own(dx.shape(), dx.dtype, dx.device);
  conv2d_backward_data(own, dy, w, p);
  add_forward(dx, dx, own);
}

void conv2d_backward_weights(View dw, View dy, View x, Window p) {
  const Algorithm algorithm = algorithm_for({dy, x, dw}, p, x.dtype);
  if (dw.dtype != x.dtype && algorithm != Algorithm::amx) {
    const Scratch<uint16_t> narrow(dw.size(), dw.device);
    View own = dw;
    own.dtype = x.dtype, own.data = narrow.data();
    conv2d_backward_weights(own, dy, x, p);
    return copy(dw, own);
  }
  switch (algorithm) {
    case Algorithm::direct: return direct_backward_weights(dw, dy, x, p);
    case Algorithm::depthwise: return depthwise_backward_weights(dw, dy, x, p);
    case Algorithm::winograd: return winograd_backward_weights(dw, dy, x, p, {});
    case Algorithm::winograd_bf16: return winograd_bf16_backward_weights(dw, dy, x, p, {});
    case Algorithm::amx: return amx_backward_weights(dw, dy, x, p, {});
  }
}

RT_ISA_END
