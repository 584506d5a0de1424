#pragma once
#include <algorithm>
#include <optional>

#include "kernels/cpu/conv/pixel_norm.h"
#include "kernels/cpu/conv/winograd_transform.h"
#include "kernels/cpu/vector/range.h"

RT_ISA_BEGIN

namespace {

// Images (n, h, w, c) whose tiles are transformed.
template <class T> struct TiledImages {
  const T* data;
  int64_t h, w, c;
  const T* zeros;  // c zeros, read instead of elements outside the image

  int64_t row() const { return w * c; }
  const T* image(int64_t n) const { return data + n * h * row(); }
};

// Gives one thread the images of its tiles, which it reads in their order. Where they are normalised, two in turn are
// in memory, of each the rows from the first tile's on.
template <class T> class ImageReader {
 public:
  ImageReader(const TiledImages<T>& x, const std::optional<Normalize<T>>& by) : x_(x), by_(by) {
    if (by) memory_.emplace(2 * x.h * x.row(), Device{});
  }

  // A pointer to the beginning of image n, whose rows from `top` to `bottom` may be read.
  const T* image(int64_t n, int64_t top, int64_t bottom) {
    if (!by_) return x_.image(n);
    top = std::max<int64_t>(top, 0), bottom = std::min(bottom, x_.h);
    T* const to = memory_->data() + n % 2 * x_.h * x_.row();
    Held& held = held_[n % 2];
    if (held.image != n) held = {n, top};
    if (held.end < bottom)
      by_->relu(to + held.end * x_.row(), x_.image(n) + held.end * x_.row(), (bottom - held.end) * x_.row());
    held.end = std::max(held.end, bottom);
    return to;
  }

 private:
  struct Held {
    int64_t image = -1, end = 0;  // of its rows
  };
  TiledImages<T> x_;
  const std::optional<Normalize<T>>& by_;
  std::optional<Scratch<T>> memory_;
  Held held_[2];
};

// The tiles of tile_h x tile_w that cover n outputs of h x w, row by row and image by image.
struct TileGrid {
  int64_t n, h, w, tile_h, tile_w;
  int64_t rows = ceil_div(h, tile_h), cols = ceil_div(w, tile_w);

  struct Place {
    int64_t image, top, left;
  };
  int64_t count() const { return n * rows * cols; }
  Place operator[](int64_t tile) const {
    return {tile / (rows * cols), tile / cols % rows * tile_h, tile % cols * tile_w};
  }
};

// The panels of a transformed matrix (rows, channels): channel c of a row is at (c / width) panel_stride + c % width.
struct PanelLayout {
  int64_t width, panel_stride;
  int64_t operator()(int64_t c) const { return c / width * panel_stride + c % width; }
};

// The elements of a tile of h x w whose first one is (top, left).
template <int h, int w, class T> struct TileElements {
  const T* at[h * w];
  int64_t channels;

  TileElements(const TiledImages<T>& x, const T* image, int64_t top, int64_t left) : channels(x.c) {
    if (top >= 0 && left >= 0 && top + h <= x.h && left + w <= x.w) {
      const T* first = image + (top * x.w + left) * x.c;
      for (int i = 0; i < h * w; ++i) at[i] = first + (i / w * x.w + i % w) * x.c;
      return;
    }
    for (int i = 0; i < h; ++i)
      for (int j = 0; j < w; ++j) {
        const int64_t row = top + i, col = left + j;
        const bool inside = row >= 0 && row < x.h && col >= 0 && col < x.w;
        at[i * w + j] = inside ? image + (row * x.w + col) * x.c : x.zeros;
      }
  }

  // Transforms the channels from c on: write(point, v) receives a vector for each point, padded with zeros.
  template <class Rows, class Cols, class Write> RT_INLINE void transform(int64_t c, const Write& write) const {
    constexpr int lanes = kLanes<float>;
    const auto to = [&](int i, int j, Vec<float> v) { write(i * Cols::out + j, v); };
    const int64_t count = channels - c;
    if (count >= lanes)
      transform_tile<Rows, Cols>([&](int i, int j) { return load_converted(at[i * w + j] + c, lanes); }, to);
    else transform_tile<Rows, Cols>([&](int i, int j) { return load_converted(at[i * w + j] + c, count); }, to);
  }
};

}  // namespace

RT_ISA_END
