#include "kernels/cpu/conv/conv2d_prepared.h"

#include <algorithm>

#include "kernels/arithmetic.h"
#include "kernels/cpu/vector/isa.h"
#include "kernels/cpu/vector/range.h"

RT_ISA_BEGIN

namespace {

// Multiply-adds in the time that a weight takes from memory, as far as products do not hide it, and in that of a number
// that is transformed: measured on AMD's Zen 4.
constexpr int64_t kReadCost = 4, kTransformCost = 4;

// In multiply-adds, of one image: with more, weights are read less often, but bytes must not depend on how many there
// are. For tiles of m x m outputs.
int64_t winograd_cost(const ConvSizes& z, int64_t m) {
  const int64_t tiles = ceil_div(z.ho, m) * ceil_div(z.wo, m), points = (m + 2) * (m + 2);
  return points * (tiles * (z.c * z.k + kTransformCost * (z.c + z.k)) + kReadCost * z.c * z.k);
}

ConvAlgorithm algorithm_for(const PreparedConv& conv) {
  const ConvSizes z = sizes_of(conv, 1);
  if (z.cg == 1 && z.kg == 1) return ConvAlgorithm::plain;
  if (!winograd_applies(z, conv.window) || z.c < 16 || z.k < 16 || arithmetic().exact_convolutions)
    return ConvAlgorithm::direct;
  const int64_t direct = z.taps() * z.c * z.k * (z.ho * z.wo + kReadCost), two = winograd_cost(z, 2),
                four = winograd_cost(z, 4);
  if (direct <= std::min(two, four)) return ConvAlgorithm::direct;
  return two < four ? ConvAlgorithm::winograd_2x2 : ConvAlgorithm::winograd_4x4;
}

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
