#include "train/data/image_file.h"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <filesystem>

#include "core/check.h"
#include "train/data/image_reader.h"
#include "train/io/file.h"

namespace ringtape {
namespace {

std::unique_ptr<ImageReader> open_image(std::string_view content, const std::string& path) {
  for (const auto open : {open_jpeg, open_png, open_webp, open_tiff, open_bmp, open_pnm})
    if (auto reader = open(content, path)) return reader;
  detail::fail<FormatError>({path, ": no image (it begins like none of ", kImageFormats, ")"});
}

ImageSize reduced(ImageSize size, int64_t by) { return {(size.height + by - 1) / by, (size.width + by - 1) / by}; }

}  // namespace

void check_image_size(const std::string& path, ImageSize size, int64_t units, int64_t per_byte,
                      std::string_view content) {
  RT_CHECK_AS(FormatError, size.width * size.height <= kMostPixels, path, ": ", size.width, " x ", size.height,
              " pixels; at most ", kMostPixels, " are supported");
  RT_CHECK_AS(FormatError, units / per_byte <= int64_t(content.size()), path, ": ", size.width, " x ", size.height,
              " pixels in ", content.size(), " bytes, which cannot hold so many; the file is damaged");
}

ImagePart cut(const uint8_t* from, int64_t row, int64_t pixel, const ImagePart& part, Image& to) {
  to.size = {part.height, part.width};
  to.rgb.resize(size_t(3 * part.height * part.width));
  uint8_t* y = to.rgb.data();
  for (int64_t r = part.top; r < part.top + part.height; ++r) {
    const uint8_t* const x = from + r * row + part.left * pixel;
    for (int64_t i = 0; i < part.width; ++i, y += 3) std::copy_n(x + i * pixel, 3, y);
  }
  return part;
}

EncodedImage::EncodedImage(std::string_view content, const std::string& path) : reader_(open_image(content, path)) {}
EncodedImage::~EncodedImage() = default;

ImageSize EncodedImage::size() const { return reader_->size(); }

Image EncodedImage::decode(int64_t least) {
  const int64_t shorter = std::min(size().height, size().width);
  int64_t by = 1;
  while (by < reader_->most_reduced() && shorter / (2 * by) >= least) by *= 2;
  const ImageSize whole = reduced(size(), by);
  Image out;
  reader_->read({0, 0, whole.height, whole.width}, by, out);
  return out;
}

int64_t EncodedImage::reduction(const ImageCrop& crop) const {
  int64_t by = 1;
  while (by < reader_->most_reduced() && crop.part.height >= 2 * by * kDetail * crop.size.height &&
         crop.part.width >= 2 * by * kDetail * crop.size.width)
    by *= 2;
  return by;
}

void EncodedImage::crop(std::span<const ImageCrop> crops) {
  constexpr size_t kKept = size_t{16} << 20;  // bytes that a thread keeps for its next image
  thread_local Image decoded;
  const auto part_at = [&](const ImageCrop& crop, int64_t by) {
    const ImageSize whole = reduced(size(), by);
    const auto at = [by](int64_t x, int64_t most) { return std::min((x + by / 2) / by, most); };
    ImagePart out{at(crop.part.top, whole.height), at(crop.part.left, whole.width), 0, 0};
    out.height = at(crop.part.top + crop.part.height, whole.height) - out.top;
    out.width = at(crop.part.left + crop.part.width, whole.width) - out.left;
    return out;
  };
  for (int64_t by = 1; by <= reader_->most_reduced(); by *= 2) {
    ImagePart all{INT64_MAX, INT64_MAX, 0, 0};
    int64_t bottom = 0, right = 0;
    for (const ImageCrop& crop : crops) {
      if (reduction(crop) != by) continue;
      const ImagePart part = part_at(crop, by);
      all.top = std::min(all.top, part.top), bottom = std::max(bottom, part.top + part.height);
      all.left = std::min(all.left, part.left), right = std::max(right, part.left + part.width);
    }
    if (bottom == 0) continue;
    all.height = bottom - all.top, all.width = right - all.left;
    const ImagePart held = reader_->read(all, by, decoded);
    for (const ImageCrop& crop : crops) {
      if (reduction(crop) != by) continue;
      ImagePart part = part_at(crop, by);
      part.top -= held.top, part.left -= held.left;
      resize_part(decoded, part, crop.size, crop.to);
    }
  }
  if (decoded.rgb.capacity() > kKept) decoded = {};
}

ImageSize read_image_size(const std::string& path) {
  const std::string content = read_file(path);
  return EncodedImage(content, path).size();
}

Image decode_image(std::string_view content, const std::string& path, int64_t least) {
  return EncodedImage(content, path).decode(least);
}

Image read_image(const std::string& path, int64_t least) { return decode_image(read_file(path), path, least); }

bool is_image_path(const std::string& path) {
  std::string end = std::filesystem::path(path).extension().string();
  std::transform(end.begin(), end.end(), end.begin(), [](unsigned char c) { return char(std::tolower(c)); });
  if (end.empty() || end.find_first_of(", ") != end.npos) return false;
  const std::string_view all = kImageEndings;
  for (size_t at = all.find(end); at < all.size(); at = all.find(end, at + 1))
    if (at + end.size() == all.size() || all[at + end.size()] == ',' || all[at + end.size()] == ' ') return true;
  return false;
}

}  // namespace ringtape
