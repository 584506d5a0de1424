#include "train/evaluation/snapshot_pictures.h"

#include <algorithm>

#include "autograd/ops.h"
#include "autograd/tape.h"

namespace ringtape {

Tensor tiled(const Tensor& images, int64_t columns) {
  const int64_t n = images.dim(0), h = images.dim(1), w = images.dim(2), c = images.dim(3);
  columns = std::min(columns, n);
  const int64_t rows = (n + columns - 1) / columns, width = columns * (w + 1) - 1;
  const Tensor out = zeros({rows * (h + 1) - 1, width, c}, DType::u8);
  for (int64_t i = 0; i < n; ++i)
    for (int64_t y = 0; y < h; ++y)
      std::copy_n(images.data<uint8_t>() + (i * h + y) * w * c, w * c,
                  out.data<uint8_t>() + ((i / columns * (h + 1) + y) * width + i % columns * (w + 1)) * c);
  return out;
}

// Each query or image, then what belongs to it, in a row: (R, K) images each.
static Tensor in_rows(const Tensor& first, const std::vector<Tensor>& others) {
  std::vector<Tensor> all;
  for (int64_t r = 0; r < first.dim(0); ++r) {
    all.push_back(slice(first, 0, r, r + 1));
    for (const Tensor& other : others) {
      const int64_t each = other.dim(0) / first.dim(0);
      all.push_back(slice(other, 0, r * each, (r + 1) * each));
    }
  }
  return concat(all, 0);
}

std::vector<std::pair<std::string, Tensor>> pictures(const Snapshot& s) {
  constexpr int64_t kColumns = 8;
  const NoGrad no_grad;
  const auto shown = [&](const Tensor& indices) {
    return index_select(s.images, 0, reshape(indices, {indices.size()}));
  };
  std::vector<std::pair<std::string, Tensor>> out;
  if (s.samples.defined()) out.emplace_back("samples", tiled(shown(s.samples), kColumns));
  if (s.viewed.defined()) {
    const Tensor first = shown(s.viewed);
    std::vector<Tensor> views;  // those of the image's size
    for (const Tensor& view : s.views)
      if (view.shape() == first.shape()) views.push_back(view);
    out.emplace_back("views", tiled(in_rows(first, views), 1 + int64_t(views.size())));
  }
  if (s.queries.defined())
    out.emplace_back("neighbours", tiled(in_rows(shown(s.queries), {shown(s.neighbours)}), 1 + s.neighbours.dim(1)));
  if (s.filters.defined()) out.emplace_back("filters", tiled(s.filters, kColumns));
  return out;
}

}  // namespace ringtape
