#include "train/evaluation/pixels.h"

#include <algorithm>
#include <cmath>

#include "autograd/ops.h"

namespace ringtape {

Tensor smaller(const Tensor& x, int64_t side) {
  const int64_t n = x.dim(0), h = x.dim(1), w = x.dim(2), c = x.dim(3);
  const int64_t k = (std::max(h, w) + side - 1) / side;
  if (k <= 1) return x;
  const int64_t rows = std::min(k, h), columns = std::min(k, w);  // of pixels that become one
  const Tensor out({n, h / rows, w / columns, c}, DType::u8);
  for (int64_t i = 0; i < out.size(); ++i) {
    const int64_t channel = i % c, x0 = i / c % out.dim(2) * columns, y0 = i / c / out.dim(2) % out.dim(1) * rows,
                  image = i / c / out.dim(2) / out.dim(1);
    int64_t sum = 0;
    for (int64_t p = 0; p < rows * columns; ++p)
      sum += x.data<uint8_t>()[((image * h + y0 + p / columns) * w + x0 + p % columns) * c + channel];
    out.data<uint8_t>()[i] = uint8_t(sum / (rows * columns));
  }
  return out;
}

Tensor pixels_of(const Tensor& normalised, const Dataset& data) {
  const Tensor x = contiguous(normalised).copy_to(Device{}), out(x.shape(), DType::u8);
  const int64_t c = x.dim(3);
  for (int64_t i = 0; i < x.size(); ++i) {
    const float value = x.data<float>()[i] * data.deviation[size_t(i % c)] + data.mean[size_t(i % c)];
    out.data<uint8_t>()[i] = uint8_t(std::lround(255 * std::clamp(value, 0.f, 1.f)));
  }
  return out;
}

}  // namespace ringtape
