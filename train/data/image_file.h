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

inline constexpr int64_t kMostPixels = int64_t{1} << 26;  // maximum per image: 8192 x 8192
// Maximum ratio of an image's sides if it is cropped to a square.
inline constexpr int64_t kMostAspect = 1000;

// Reads a JPEG (by libjpeg) or PNG file (by libpng), recognised by its first bytes. Grey, CMYK and transparent images
// become RGB, as with Pillow's convert("RGB"): transparency is dropped. Throws IoError for a file that cannot be read;
// FormatError, with the library's reason, for a damaged file (libjpeg's warnings count, since they mean missing pixels)
// and, before memory is allocated, for an image of more than kMostPixels and a file too short for the pixels that it
// declares.
ImageSize read_image_size(const std::string& path);  // reads only the header
ImageSize image_size_of(const std::string& content, const std::string& path);
// `least`: minimum length of the shorter side. libjpeg decodes to a half, quarter or eighth where that permits it.
Image read_image(const std::string& path, int64_t least = INT64_MAX);

// The same for the content of a file; `path` is its name in errors.
Image decode_image(const std::string& content, const std::string& path, int64_t least = INT64_MAX);

// Bilinear; where the image shrinks, over all pixels that an output pixel covers: as Pillow and torchvision's Resize,
// to within one level of 255.
Image resized(const Image& image, ImageSize size);

// Scales the shorter side to `side`, then crops side x side from the middle: torchvision's Resize(side),
// CenterCrop(side). Only the part that is kept is scaled, so the cost does not depend on the longer side.
Image resized_and_cropped(const Image& image, int64_t side);

// Whether a path ends as those of the images that can be read, in either case.
inline constexpr const char* kImageEndings = ".jpg, .jpeg or .png";
bool is_image_path(const std::string& path);

// An image of this size: scaled, and cropped to a square if `size` is one, unless it has this size. Throws FormatError
// for one that is too narrow for a square.
Image read_image_as(const std::string& path, ImageSize size);
Image decode_image_as(const std::string& content, const std::string& path, ImageSize size);

// Writes (height, width, channels) bytes, of 3 channels or of 1: the luma of ITU-R 601, as with Pillow's convert("L").
void copy_pixels(const Image& image, int64_t channels, uint8_t* to);

}  // namespace ringtape
