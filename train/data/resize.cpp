#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/check.h"
#include "kernels/resample.h"
#include "train/data/image_file.h"
#include "train/io/file.h"

namespace ringtape {
namespace {

// Output pixels [begin, begin + count) along an axis that is scaled to `length` pixels.
struct Kept {
  int64_t length, begin, count;
};

// A part of an image resized to (rows.length, columns.length): (rows.count, columns.count, 3) bytes of it.
void resample_part(const Image& image, const ImagePart& part, Kept rows, Kept columns, uint8_t* to) {
  constexpr int64_t kMostProduct = int64_t{1} << 60;
  RT_CHECK_AS(UsageError,
              rows.length <= kMostProduct / std::max<int64_t>(part.height, 1) &&
                  columns.length <= kMostProduct / std::max<int64_t>(part.width, 1),
              part.width, " x ", part.height, " pixels scaled to ", columns.length, " x ", rows.length,
              ": that is too large");
  View y{to, DType::u8, {}, 3, {rows.count, columns.count, 3}, {3 * columns.count, 3, 1}};
  View x{const_cast<uint8_t*>(image.rgb.data()) + 3 * (part.top * image.size.width + part.left), DType::u8, {}, 3,
         {part.height, part.width, 3}, {3 * image.size.width, 3, 1}};
  resample(y, x, {rows.length, columns.length, rows.begin, columns.begin});
}

Image scaled_part(const Image& image, Kept rows, Kept columns) {
  Image out{{rows.count, columns.count}, std::vector<uint8_t>(size_t(3 * rows.count * columns.count))};
  resample_part(image, {0, 0, image.size.height, image.size.width}, rows, columns, out.rgb.data());
  return out;
}

}  // namespace

void resize_part(const Image& image, const ImagePart& part, ImageSize size, uint8_t* to) {
  resample_part(image, part, {size.height, 0, size.height}, {size.width, 0, size.width}, to);
}

Image resized(const Image& image, ImageSize size) {
  if (image.size == size) return image;
  return scaled_part(image, {size.height, 0, size.height}, {size.width, 0, size.width});
}

Image resized_and_cropped(const Image& image, int64_t side) {
  const auto [height, width] = image.size;
  const int64_t shorter = std::min(height, width);
  const auto middle = [&](int64_t length) {
    const int64_t scaled = side * length / shorter;
    return Kept{scaled, int64_t(std::nearbyint(double(scaled - side) / 2)), side};
  };
  return scaled_part(image, middle(height), middle(width));
}

Image read_image_as(const std::string& path, ImageSize size) { return decode_image_as(read_file(path), path, size); }

Image decode_image_as(std::string_view content, const std::string& path, ImageSize size) {
  Image image = decode_image(content, path, kDetail * std::max(size.height, size.width));
  if (image.size == size) return image;
  if (size.height != size.width) return resized(image, size);
  const auto [shorter, longer] = std::minmax(image.size.height, image.size.width);
  RT_CHECK_AS(FormatError, longer <= kMostAspect * shorter, path, ": ", image.size.width, " x ", image.size.height,
              " pixels, too narrow for a square from the middle: one side is more than ", kMostAspect,
              " times the other; remove it");
  return resized_and_cropped(image, size.height);
}

void copy_pixels(const Image& image, int64_t channels, uint8_t* to) {
  const int64_t pixels = image.size.height * image.size.width;
  if (channels == 3) {
    std::memcpy(to, image.rgb.data(), size_t(pixels * 3));
    return;
  }
  RT_CHECK_AS(UsageError, channels == 1, "images of ", channels, " channels: expected 1 or 3");
  for (int64_t i = 0; i < pixels; ++i) {
    const uint8_t* const p = image.rgb.data() + 3 * i;
    to[i] = uint8_t((19595u * p[0] + 38470u * p[1] + 7471u * p[2] + 0x8000u) >> 16);  // Pillow's weights, of 2^16
  }
}

}  // namespace ringtape
