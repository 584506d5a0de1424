#include "train/data/normalize.h"

#include <numeric>

#include "kernels/augment.h"

namespace ringtape {

Tensor byte_table(const std::vector<float>& mean, const std::vector<float>& deviation, Device device) {
  std::vector<float> table;
  for (size_t c = 0; c < mean.size(); ++c)
    for (int byte = 0; byte < 256; ++byte) table.push_back((float(byte) / 255.0f - mean[c]) / deviation[c]);
  return from_host(table, {int64_t(mean.size()), 256}, device);
}

Tensor normalized(const Tensor& images, const Tensor& table) {
  std::vector<int64_t> all(size_t(images.dim(0)));
  std::iota(all.begin(), all.end(), 0);
  const Tensor y(images.shape(), DType::f32, images.device());
  augment(y, images, from_host(all, {images.dim(0)}, images.device()), table, AugmentParams());
  return y;
}

}  // namespace ringtape
