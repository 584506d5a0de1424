#include "train/data/image/image_file.h"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <filesystem>

#include "core/check.h"
#include "train/data/image/exif.h"
#include "train/data/image/image_reader.h"
#include "train/io/file.h"

namespace ringtape {
static std::unique_ptr<ImageReader> open_image(std::string_view content, const std::string& path) {
  for (const auto open : {open_jpeg, open_png, open_webp, open_tiff, open_bmp, open_pnm})
    if (auto reader = open(content, path)) return reader;
  RT_CHECK_AS(FormatError, !content.empty(), path, ": is empty; expected an image");
  detail::fail<FormatError>({path, ": no image (it begins like none of ", kImageFormats, ")"});
}

void check_image_size(const std::string& path, ImageSize size, int64_t units, int64_t per_byte,
                      std::string_view content) {
  RT_CHECK_AS(FormatError, size.width * size.height <= kMaxPixels, path, ": ", size.width, " x ", size.height,
              " pixels; at most ", kMaxPixels, " are supported");
  RT_CHECK_AS(FormatError, units / per_byte <= int64_t(content.size()), path, ": ", size.width, " x ", size.height,
              " pixels in ", content.size(), " bytes, which cannot hold so many; the file is damaged");
}

void check_pixels_per_byte(const std::string& path, ImageSize size, std::string_view content) {
  constexpr int64_t kAnyway = int64_t{1} << 24, kPerByte = 4096;
  check_image_size(path, size, 0, 1, content);
  RT_CHECK_AS(FormatError, (size.width * size.height - kAnyway) / kPerByte <= int64_t(content.size()), path, ": ",
              size.width, " x ", size.height, " pixels in only ", content.size(), " bytes; of more than ", kAnyway,
              " pixels at most ", kPerByte,
              " are read for each byte, against files that are made to fill the memory; "
              "scale it down, or save it in another format");
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

EncodedImage::EncodedImage(std::string_view content, const std::string& path, bool upright)
    : reader_(open_image(content, path)) {
  if (upright) reader_ = turn(std::move(reader_), {exif_orientation(content)});
}
EncodedImage::~EncodedImage() = default;

ImageSize EncodedImage::size() const { return reader_->size(); }

Image EncodedImage::decode() {
  Image out;
  reader_->read({0, 0, size().height, size().width}, 1, out);
  return out;
}

int64_t EncodedImage::reduction(const ImageCrop& crop) const {
  int64_t by = 1;
  while (by < reader_->most_reduced() && crop.part.height >= 2 * by * crop.detail * crop.size.height &&
         crop.part.width >= 2 * by * crop.detail * crop.size.width)
    by *= 2;
  return by;
}

void EncodedImage::crop(std::span<const ImageCrop> crops) {
  constexpr size_t kKept = size_t{16} << 20;  // bytes that a thread keeps for its next image
  thread_local Image decoded;
  for (int64_t by = 1; by <= reader_->most_reduced(); by *= 2) {
    ImagePart all{INT64_MAX, INT64_MAX, 0, 0};
    int64_t bottom = 0, right = 0;
    for (const ImageCrop& crop : crops) {
      const ImagePart& part = crop.part;
      if (reduction(crop) != by) continue;
      all.top = std::min(all.top, part.top / by), all.left = std::min(all.left, part.left / by);
      bottom = std::max(bottom, (part.top + part.height + by - 1) / by);
      right = std::max(right, (part.left + part.width + by - 1) / by);
    }
    if (bottom == 0) continue;
    all.height = bottom - all.top, all.width = right - all.left;
    const ImagePart held = reader_->read(all, by, decoded);
    for (ImageCrop crop : crops) {
      if (reduction(crop) != by) continue;
      crop.part.top -= by * held.top, crop.part.left -= by * held.left;
      resize_part(decoded, crop, by);
    }
  }
  if (decoded.rgb.capacity() > kKept) decoded = {};
}

ImageSize read_image_size(const std::string& path) {
  const std::string content = read_file(path);
  return EncodedImage(content, path).size();
}

Image decode_image(std::string_view content, const std::string& path) { return EncodedImage(content, path).decode(); }

Image read_image(const std::string& path) { return decode_image(read_file(path), path); }

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
