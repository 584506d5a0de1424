#include "kernels/augment.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "core/parallel.h"
#include "kernels/cpu/vector/isa.h"
#include "kernels/cpu/vector/look_up.h"

RT_ISA_BEGIN
namespace {

constexpr int64_t kAugmentElementsAThread = 32 * 1024;

struct AugmentFrame {
  int64_t height, width, channels, out_height, out_width;
  int64_t out_row() const { return out_width * channels; }
  int64_t image() const { return height * width * channels; }
  int64_t out_image() const { return out_height * out_row(); }
};

// Row `row` of y as bytes, before the flip: a pointer into the image, or `buffer`.
const uint8_t* upright_row(uint8_t* buffer, const uint8_t* image, const AugmentFrame& f, const CropPlace& at,
                           int64_t row, const AugmentParams& p) {
  const int64_t c = f.channels, from_row = p.reflect ? reflected(at.top + row, f.height) : at.top + row;
  const bool rotated = p.most_angle > 0;
  const auto column = [&](int64_t i) { return p.reflect ? reflected(at.left + i, f.width) : at.left + i; };
  if (rotated && p.reflect) {
    for (int64_t i = 0; i < f.out_width; ++i)
      for (int64_t k = 0; k < c; ++k)
        buffer[i * c + k] =
            between_pixels(image, f.height, f.width, c, k, turned(at, from_row, column(i), f.height, f.width));
    return buffer;
  }
  if (rotated) {
    Turned place = turned(at, from_row, at.left, f.height, f.width);
    for (int64_t i = 0; i < f.out_width; ++i) {
      for (int64_t k = 0; k < c; ++k) buffer[i * c + k] = between_pixels(image, f.height, f.width, c, k, place);
      place.y += at.sine << 1;
      place.x += at.cosine << 1;
    }
    return buffer;
  }
  const int64_t begin = std::max<int64_t>(-at.left, 0),
                end = std::min(f.out_width, f.width - at.left);  // columns inside the image
  const bool inside = from_row >= 0 && from_row < f.height && begin < end;
  const uint8_t* from = image + (from_row * f.width + at.left) * c;
  if (inside && begin == 0 && end == f.out_width) return from;
  std::memset(buffer, 0, size_t(f.out_row()));
  if (inside) std::memcpy(buffer + begin * c, from + begin * c, size_t((end - begin) * c));
  for (int64_t i = 0; i < f.out_width && p.reflect; ++i)
    if (i < begin || i >= end) std::copy_n(image + (from_row * f.width + column(i)) * c, c, buffer + i * c);
  return buffer;
}

template <class T>
void augment_image(T* y, const uint8_t* image, const AugmentFrame& f, const CropPlace& at, const T* table,
                   const AugmentParams& p, uint8_t* buffer) {
  for (int64_t row = 0; row < f.out_height; ++row, y += f.out_row()) {
    const uint8_t* bytes = upright_row(buffer, image, f, at, row, p);
    if (at.flip) look_up<true>(y, bytes, f.out_width, table, f.channels);
    else look_up<false>(y, bytes, f.out_width, table, f.channels);
    if (row >= at.cut_top && row < at.cut_top + p.cutout) {
      const int64_t begin = std::max<int64_t>(at.cut_left, 0), end = std::min(at.cut_left + p.cutout, f.out_width);
      std::fill(y + begin * f.channels, y + end * f.channels, T(0));
    }
  }
}

template <class T>
void augment_as(const View& y, const View& images, const View& index, const T* table, const AugmentParams& p) {
  const AugmentFrame f{images.dims[1], images.dims[2], images.dims[3], y.dims[1], y.dims[2]};
  const int64_t free_rows = f.height + 2 * p.pad - f.out_height, free_columns = f.width + 2 * p.pad - f.out_width;
  const bool whole = free_rows == 0 && free_columns == 0 && p.pad == 0 && !p.flip && p.most_angle == 0 && p.cutout == 0;
  const int64_t images_a_thread = kAugmentElementsAThread / std::max<int64_t>(f.out_image(), 1);
  parallel_for(y.dims[0], images_a_thread, [&](int64_t begin, int64_t end) {
    std::vector<uint8_t> buffer(size_t(f.out_row()));
    for (int64_t b = begin; b < end; ++b) {
      const int64_t sample = index.as<int64_t>()[b];
      const uint8_t* image = images.as<uint8_t>() + (p.gathered ? b : sample) * f.image();
      T* to = static_cast<T*>(y.data) + b * f.out_image();
      if (whole) look_up<false>(to, image, f.height * f.width, table, f.channels);
      else
        augment_image(to, image, f, place(p, sample, free_rows, free_columns, f.out_height, f.out_width), table, p,
                      buffer.data());
    }
  });
}

}  // namespace

void augment(View y, View images, View index, View table, AugmentParams params) {
  dispatch_image(y.dtype, [&]<class T>() { augment_as(y, images, index, static_cast<const T*>(table.data), params); });
}

RT_ISA_END
