#include "kernels/mix.h"

#include <algorithm>

#include "core/parallel.h"
#include "kernels/cpu/vector/isa.h"

RT_ISA_BEGIN
namespace {

constexpr int64_t kMixedElementsAThread = 32 * 1024;

void mix_elements(float* __restrict y, const float* __restrict x, const float* __restrict other, int64_t n,
                  double share) {
  if (share == 1) std::copy_n(x, n, y);
  else
    for (int64_t i = 0; i < n; ++i) y[i] = mixed(x[i], other[i], share);
}

}  // namespace

void mix(View y, View x, Mixture mixture) {
  const int64_t height = y.dims[1], row_elements = y.dims[2] * y.dims[3], elements = height * row_elements;
  const Rectangle& part = mixture.part;
  const int64_t left = part.left * y.dims[3], right = left + part.width * y.dims[3];
  parallel_for(y.dims[0], kMixedElementsAThread / std::max<int64_t>(elements, 1), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin * height; row < end * height; ++row) {
      float* const to = y.as<float>() + row * row_elements;
      const float* const other = x.as<float>() + row * row_elements;
      mix_elements(to, other + elements, other, row_elements, mixture.share);
      const int64_t at = row % height - part.top;
      if (at >= 0 && at < part.height) std::copy(other + left, other + right, to + left);
    }
  });
}

RT_ISA_END
