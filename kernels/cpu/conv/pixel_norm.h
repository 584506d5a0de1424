#pragma once
#include <optional>

#include "kernels/conv2d_norm.h"
#include "kernels/cpu/vector/normalize.h"

RT_ISA_BEGIN

namespace {

// What normalises images of so many pixels, if anything does.
template <class T> std::optional<Normalize<T>> normalize_of(int64_t pixels, int64_t channels, const PixelNorm& by) {
  if (!by.mean.data) return {};
  View image;
  image.rank = 2, image.dims[0] = pixels, image.dims[1] = channels, image.device = by.mean.device;
  return std::make_optional<Normalize<T>>(Rows(image, kLongRow), by.mean, by.var, by.w, by.b, by.eps);
}

}  // namespace

RT_ISA_END
