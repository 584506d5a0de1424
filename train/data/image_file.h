#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace ringtape {

struct ImageSize {
  int64_t height = 0, width = 0;
  bool operator==(const ImageSize&) const = default;
};

// (height, width, 3) bytes.
struct Image {
  ImageSize size;
  std::vector<uint8_t> rgb;
};

inline constexpr int64_t kMostPixels = int64_t{1} << 26;  // of an image: 8192 x 8192
// Times that one side of an image may be the other, where it is cropped to a square.
inline constexpr int64_t kMostAspect = 1000;

// Reads a JPEG (through libjpeg) or PNG file (through libpng), told apart by their first bytes; grey, CMYK and
// transparent ones become RGB, as Pillow's convert("RGB") has it: transparency is dropped. Throws IoError for a file
// that cannot be read; FormatError with the library's reason for a damaged one (libjpeg's warnings count: they mean
// that pixels are missing), and, before memory is taken for them, for one of more than kMostPixels and one that is too
// short to hold as many pixels as it declares.
ImageSize read_image_size(const std::string& path);  // from the header alone
// `least`: how long the shorter side must at least stay. Where libjpeg can decode to
// a half, quarter or eighth, it does.
Image read_image(const std::string& path, int64_t least = INT64_MAX);

// The same of a file's content; `path` is what errors call it.
Image decode_image(const std::string& content, const std::string& path, int64_t least = INT64_MAX);

// Bilinear, over the pixels that an output pixel covers where the image becomes smaller: what Pillow and torchvision's
// Resize do, to one level of 255.
Image resized(const Image& image, ImageSize size);

// The shorter side brought to `side`, then side x side from the middle: torchvision's Resize(side), CenterCrop(side).
// What is cut off is never scaled, so that its length costs nothing.
Image resized_and_cropped(const Image& image, int64_t side);

}  // namespace ringtape
