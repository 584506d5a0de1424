#include "kernels/erase.h"

#include <algorithm>

#include "core/parallel.h"
#include "kernels/cpu/vector/isa.h"

RT_ISA_BEGIN
namespace {

constexpr int64_t kErasedElementsAThread = 64 * 1024;

void erase_part(float* y, const Rectangle& part, int64_t height, int64_t width, int64_t channels) {
  const int64_t left = std::max<int64_t>(part.left, 0), right = std::min(part.left + part.width, width);
  const int64_t top = std::max<int64_t>(part.top, 0), bottom = std::min(part.top + part.height, height);
  for (int64_t row = top; row < bottom && left < right; ++row)
    std::fill_n(y + (row * width + left) * channels, (right - left) * channels, 0.0f);
}

}  // namespace

void erase(View y, View index, EraseParams params) {
  const int64_t height = y.dims[1], width = y.dims[2], channels = y.dims[3], elements = height * width * channels;
  parallel_for(y.dims[0], kErasedElementsAThread / std::max<int64_t>(elements, 1), [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      const int64_t sample = index.as<int64_t>()[b];
      for (const Rectangle& part :
           {draw_erased(params, sample, height, width), draw_cutout(params, sample, height, width)})
        erase_part(y.as<float>() + b * elements, part, height, width, channels);
    }
  });
}

RT_ISA_END
