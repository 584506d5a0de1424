#include <algorithm>
#include <cmath>

#include "train/data/image_file.h"

namespace ringtape {
namespace {

// What one output pixel of an axis is made of: input pixels from `first` on, with weights that add up to 1.
struct Taps {
  int64_t first;
  std::vector<float> weights;
};

// A triangle around the output pixel's centre, as wide as the larger of an input and an output pixel.
std::vector<Taps> taps(int64_t from, int64_t to) {
  std::vector<Taps> out;
  const double scale = double(from) / double(to), support = std::max(scale, 1.0);
  for (int64_t i = 0; i < to; ++i) {
    const double centre = (double(i) + 0.5) * scale;
    const auto first = std::max<int64_t>(int64_t(std::floor(centre - support + 0.5)), 0);
    const auto last = std::min<int64_t>(int64_t(std::floor(centre + support + 0.5)), from);
    Taps& t = out.emplace_back(Taps{first, {}});
    double sum = 0;
    for (int64_t k = first; k < last; ++k) {
      const double weight = std::max(1 - std::abs((double(k) + 0.5 - centre) / support), 0.0);
      t.weights.push_back(float(weight));
      sum += weight;
    }
    for (float& weight : t.weights) weight = float(weight / sum);
  }
  return out;
}

}  // namespace

Image resized(const Image& image, ImageSize size) {
  if (image.size == size) return image;
  const std::vector<Taps> columns = taps(image.size.width, size.width), rows = taps(image.size.height, size.height);
  const int64_t from_row = 3 * image.size.width, to_row = 3 * size.width;
  std::vector<float> narrow(size_t(image.size.height * to_row));
  for (int64_t r = 0; r < image.size.height; ++r)
    for (int64_t x = 0; x < size.width; ++x)
      for (int64_t c = 0; c < 3; ++c) {
        const Taps& t = columns[size_t(x)];
        const uint8_t* from = image.rgb.data() + r * from_row + 3 * t.first + c;
        float sum = 0;
        for (size_t k = 0; k < t.weights.size(); ++k) sum += t.weights[k] * float(from[3 * k]);
        narrow[size_t(r * to_row + 3 * x + c)] = sum;
      }
  Image out{size, std::vector<uint8_t>(size_t(size.height * to_row))};
  std::vector<float> sums(static_cast<size_t>(to_row));
  for (int64_t y = 0; y < size.height; ++y) {
    const Taps& t = rows[size_t(y)];
    std::fill(sums.begin(), sums.end(), 0.5f);
    for (size_t k = 0; k < t.weights.size(); ++k)
      for (int64_t i = 0; i < to_row; ++i) sums[size_t(i)] += t.weights[k] * narrow[size_t((t.first + int64_t(k)) * to_row + i)];
    for (int64_t i = 0; i < to_row; ++i) out.rgb[size_t(y * to_row + i)] = uint8_t(std::min(sums[size_t(i)], 255.0f));
  }
  return out;
}

Image resized_and_cropped(const Image& image, int64_t side) {
  const auto [height, width] = image.size;
  const int64_t shorter = std::min(height, width);
  const Image scaled = resized(image, {side * height / shorter, side * width / shorter});
  const auto middle = [side](int64_t length) { return int64_t(std::nearbyint(double(length - side) / 2)); };
  const int64_t top = middle(scaled.size.height), left = middle(scaled.size.width);
  Image out{{side, side}, std::vector<uint8_t>(size_t(3 * side * side))};
  for (int64_t r = 0; r < side; ++r)
    std::copy_n(scaled.rgb.begin() + 3 * ((top + r) * scaled.size.width + left), 3 * side, out.rgb.begin() + 3 * r * side);
  return out;
}

}  // namespace ringtape
