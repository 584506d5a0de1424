#include "kernels/cpu/conv/conv2d_prepared.h"

#include <algorithm>

#include "kernels/arithmetic.h"
#include "kernels/cpu/vector/isa.h"

RT_ISA_BEGIN

namespace {

ConvAlgorithm algorithm_for(const PreparedConv& conv) {
  const ConvSizes z = sizes_of(conv, 1);
  const Window& p = conv.window;
  const bool applies = z.r == 3 && z.s == 3 && p.stride_h == 1 && p.stride_w == 1 && p.dilation_h == 1 &&
                       p.dilation_w == 1 && p.pad_h <= 2 && p.pad_w <= 2 && z.groups == 1;
  if (z.cg == 1 && z.kg == 1) return ConvAlgorithm::plain;
  if (!applies || z.c < 16 || z.k < 16 || arithmetic().exact_convolutions) return ConvAlgorithm::direct;
  return z.ho * z.wo > 100 ? ConvAlgorithm::winograd_4x4 : ConvAlgorithm::winograd_2x2;
}

bool by_unit(const PreparedConv& conv) { return conv.dtype == DType::bf16 && conv.unit.unit == Bf16Unit::avx512_bf16; }

}  // namespace

void pack_conv2d(View w, PreparedConv* to) {
  PreparedConv& conv = *to;
  if (conv.algorithm == ConvAlgorithm::plain) conv.algorithm = algorithm_for(conv);
  if (conv.algorithm == ConvAlgorithm::plain) return;
  if (conv.algorithm == ConvAlgorithm::direct) return pack_direct(w, conv);
  by_unit(conv) ? pack_winograd_bf16(w, conv) : pack_winograd(w, conv);
}

void run_prepared_conv2d(View y, View x, const PreparedConv& conv, View residual, bool relu) {
  const PreparedCall call{conv, y, x, residual, relu};
  if (conv.algorithm == ConvAlgorithm::direct) return run_direct(call);
  by_unit(conv) ? run_winograd_bf16(call) : run_winograd(call);
}

RT_ISA_END
