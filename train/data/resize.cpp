#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/check.h"
#include "train/data/image_file.h"
#include "train/io/file.h"

namespace ringtape {
namespace {

// Output pixels [begin, begin + count) along an axis that is scaled to `length` pixels.
struct Kept {
  int64_t length, begin, count;
};

// Weights along an axis: output pixel i sums over input pixels [first[i], last[i]), with weights of total 1.
struct Taps {
  std::vector<int64_t> first, last;
  std::vector<float> weights;  // `width` entries per output pixel
  int64_t width;

  const float* of(int64_t i) const { return weights.data() + i * width; }
};

// A triangle filter around the output pixel's centre, as wide as the larger of an input and an output pixel.
Taps taps(int64_t from, Kept to) {
  const double scale = double(from) / double(to.length), support = std::max(scale, 1.0);
  Taps out{{}, {}, {}, std::min<int64_t>(int64_t(2 * support) + 2, from)};
  out.weights.resize(size_t(to.count * out.width));
  for (int64_t i = 0; i < to.count; ++i) {
    const double centre = (double(to.begin + i) + 0.5) * scale;
    const auto first = std::max<int64_t>(int64_t(std::floor(centre - support + 0.5)), 0);
    const auto last = std::min<int64_t>(int64_t(std::floor(centre + support + 0.5)), from);
    out.first.push_back(first), out.last.push_back(last);
    float* const weights = out.weights.data() + i * out.width;
    double sum = 0;
    for (int64_t k = first; k < last; ++k) {
      const double weight = std::max(1 - std::abs((double(k) + 0.5 - centre) / support), 0.0);
      weights[k - first] = float(weight);
      sum += weight;
    }
    for (int64_t k = 0; k < last - first; ++k) weights[k] = float(weights[k] / sum);
  }
  return out;
}

// The part (rows, columns) of an image scaled to (rows.length, columns.length). Reads only the input that this part
// needs, and holds only as many scaled rows as one row of the result needs.
Image scaled_part(const Image& image, Kept rows, Kept columns) {
  const Taps across = taps(image.size.width, columns), down = taps(image.size.height, rows);
  const int64_t from_row = 3 * image.size.width, to_row = 3 * columns.count;
  // Input row r, scaled horizontally, is at r % down.width.
  std::vector<float> narrow(size_t(down.width * to_row));
  const auto narrow_row = [&](int64_t r) { return narrow.data() + r % down.width * to_row; };
  const auto fill = [&](int64_t r) {
    float* const to = narrow_row(r);
    for (int64_t x = 0; x < columns.count; ++x)
      for (int64_t c = 0; c < 3; ++c) {
        const uint8_t* from = image.rgb.data() + r * from_row + 3 * across.first[size_t(x)] + c;
        const float* weights = across.of(x);
        const int64_t count = across.last[size_t(x)] - across.first[size_t(x)];
        float sum = 0;
        for (int64_t k = 0; k < count; ++k) sum += weights[k] * float(from[3 * k]);
        to[3 * x + c] = sum;
      }
  };
  Image out{{rows.count, columns.count}, std::vector<uint8_t>(size_t(rows.count * to_row))};
  std::vector<float> sums(static_cast<size_t>(to_row));
  int64_t filled = rows.count > 0 ? down.first[0] : 0;  // all rows before it are scaled
  for (int64_t y = 0; y < rows.count; ++y) {
    const int64_t first = down.first[size_t(y)], last = down.last[size_t(y)];
    for (filled = std::max(filled, first); filled < last; ++filled) fill(filled);
    const float* weights = down.of(y);
    std::fill(sums.begin(), sums.end(), 0.5f);
    for (int64_t r = first; r < last; ++r) {
      const float* const from = narrow_row(r);
      for (int64_t i = 0; i < to_row; ++i) sums[size_t(i)] += weights[r - first] * from[i];
    }
    for (int64_t i = 0; i < to_row; ++i) out.rgb[size_t(y * to_row + i)] = uint8_t(std::min(sums[size_t(i)], 255.0f));
  }
  return out;
}

}  // namespace

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

Image decode_image_as(const std::string& content, const std::string& path, ImageSize size) {
  // JPEGs are decoded to at least this multiple of the size that is needed (Pillow's reducing_gap).
  constexpr int64_t kDetail = 2;
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
