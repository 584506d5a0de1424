#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/check.h"
#include "kernels/resample.h"
#include "train/data/image/image_file.h"
#include "train/io/file.h"

namespace ringtape {
// Within the limits of kernels/resample.h.
static bool can_scale(const ScaledAxis& a) {
  constexpr int64_t kMaxProduct = int64_t{1} << 60;
  if (a.to > kMaxProduct / std::max<int64_t>(a.from + 2 * a.by, 1)) return false;
  const auto from = double(a.from), most = std::max(from, double(a.to * a.by));
  return a.how == Interpolation::bilinear || most * most * most * (from / double(a.to) + 1) <= kMaxCubic;
}

static Image image_of(ImageSize size) { return {size, std::vector<uint8_t>(size_t(3 * size.height * size.width))}; }

void resize_part(const Image& image, const ImageCrop& crop, int64_t by) {
  const auto& [part, size, to, kept, detail, how] = crop;
  const int64_t height = kept.height > 0 ? kept.height : size.height, width = kept.height > 0 ? kept.width : size.width;
  const ScaledAxis rows{part.height, size.height, by, part.top % by, how},
      columns{part.width, size.width, by, part.left % by, how};
  RT_CHECK_AS(UsageError, can_scale(rows) && can_scale(columns), part.width, " x ", part.height, " pixels scaled to ",
              size.width, " x ", size.height, ": that is too large");
  const View y{to, DType::u8, {}, 3, {height, width, 3}, {3 * width, 3, 1}};
  const View x{const_cast<uint8_t*>(image.rgb.data()) + 3 * (part.top / by * image.size.width + part.left / by),
               DType::u8,
               {},
               3,
               {rows.pixels(), columns.pixels(), 3},
               {3 * image.size.width, 3, 1}};
  resample(y, x, {rows, columns, kept.top, kept.left});
}

std::vector<std::string> interpolations() { return {"bilinear", "bicubic"}; }

Interpolation interpolation_of(const std::string& name) {
  const std::vector<std::string> all = interpolations();
  const auto found = std::ranges::find(all, name);
  RT_CHECK_AS(UsageError, found != all.end(), "interpolation '", name, "': expected bilinear or bicubic");
  return Interpolation(found - all.begin());
}

ImageCrop middle_square(ImageSize image, int64_t side, int64_t shorter) {
  const int64_t from = std::min(image.height, image.width), to = shorter > 0 ? shorter : side;
  const ImageSize scaled{to * image.height / from, to * image.width / from};
  const auto margin = [side](int64_t length) { return int64_t(std::nearbyint(double(length - side) / 2)); };
  return {
      {0, 0, image.height, image.width}, scaled, nullptr, {margin(scaled.height), margin(scaled.width), side, side}};
}

Image resized(const Image& image, ImageSize size) {
  Image out = image_of(size);
  resize_part(image, {{0, 0, image.size.height, image.size.width}, size, out.rgb.data()});
  return out;
}

Image resized_and_cropped(const Image& image, int64_t side) {
  Image out = image_of({side, side});
  ImageCrop crop = middle_square(image.size, side);
  crop.to = out.rgb.data();
  resize_part(image, crop);
  return out;
}

Image read_image_as(const std::string& path, ImageSize size, const ImageReading& how) {
  return decode_image_as(read_file(path), path, size, how);
}

Image decode_image_as(std::string_view content, const std::string& path, ImageSize size, const ImageReading& how) {
  EncodedImage image(content, path, how.upright);
  const auto [height, width] = image.size();
  ImageCrop crop{{0, 0, height, width}, size};
  if (size.height == size.width && (how.resize > 0 || image.size() != size)) {
    const auto [shorter, longer] = std::minmax(height, width);
    RT_CHECK_AS(FormatError, longer <= kMaxAspect * shorter, path, ": ", width, " x ", height,
                " pixels, too narrow for a square from the middle: one side is more than ", kMaxAspect,
                " times the other; remove it");
    crop = middle_square(image.size(), size.height, how.resize);
  }
  Image out = image_of(size);
  crop.to = out.rgb.data(), crop.detail = kDetail, crop.how = how.interpolation;
  image.crop({&crop, 1});
  return out;
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
