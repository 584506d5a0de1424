#pragma once
#include <algorithm>

#include "kernels/cpu/range.h"
#include "kernels/cpu/winograd_transform.h"

RT_ISA_BEGIN

namespace {

// Images (n, h, w, c) whose tiles are transformed.
template <class T>
struct TiledImages {
  const T* data;
  int64_t h, w, c;
  const T* zeros;  // c zeros, read instead of elements outside the image
};

// The 4x4 tiles that cover n outputs of h x w, row by row and image by image.
struct TileGrid {
  int64_t n, h, w;
  int64_t rows = ceil_div(h, kTileOut), cols = ceil_div(w, kTileOut);

  struct Place {
    int64_t image, top, left;
  };
  int64_t count() const { return n * rows * cols; }
  Place operator[](int64_t tile) const {
    return {tile / (rows * cols), tile / cols % rows * kTileOut, tile % cols * kTileOut};
  }
};

// The panels of a transformed matrix (rows, channels): channel c of a row is at (c / width) panel_stride + c % width.
struct PanelLayout {
  int64_t width, panel_stride;
  int64_t operator()(int64_t c) const { return c / width * panel_stride + c % width; }
};

// Transforms all channels of the tile whose first element is (top, left): writes point (i, j) to to[(6 i + j)
// point_stride + layout(c)]. The last vector is padded with zeros.
template <class Transform, class T>
void transform_tile(const TiledImages<T>& x, int64_t image, int64_t top, int64_t left, float* to, int64_t point_stride,
                    PanelLayout layout) {
  constexpr int size = Transform::in, lanes = kLanes<float>;
  const T* at[size * size];
  for (int i = 0; i < size; ++i)
    for (int j = 0; j < size; ++j) {
      const int64_t row = top + i, col = left + j;
      const bool inside = row >= 0 && row < x.h && col >= 0 && col < x.w;
      at[i * size + j] = inside ? x.data + ((image * x.h + row) * x.w + col) * x.c : x.zeros;
    }
  for (int64_t c = 0; c < x.c; c += lanes) {
    float* out = to + layout(c);
    const auto write = [&](int i, int j, Vec<float> v) { store(out + (i * kTileIn + j) * point_stride, v); };
    if (x.c - c >= lanes)
      transform_square<Transform>([&](int i, int j) { return load_converted(at[i * size + j] + c, lanes); }, write);
    else
      transform_square<Transform>([&](int i, int j) { return load_converted(at[i * size + j] + c, x.c - c); }, write);
  }
}

}  // namespace

RT_ISA_END
