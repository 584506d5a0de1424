#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/image_changes.h"

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

struct ImagePart {
  int64_t top = 0, left = 0, height = 0, width = 0;
};

inline constexpr int64_t kMaxPixels = int64_t{1} << 26;  // maximum per image: 8192 x 8192
// Maximum ratio of an image's sides if it is cropped to a square.
inline constexpr int64_t kMaxAspect = 1000;

// What is read, for messages.
inline constexpr const char* kImageFormats = "JPEG, PNG, WebP, TIFF, BMP, PGM and PPM";
inline constexpr const char* kImageEndings = ".jpg, .jpeg, .png, .webp, .tif, .tiff, .bmp, .pgm or .ppm";

// Reads an image file in one of kImageFormats, recognised by its first bytes; of TIFF the first image; no animated
// WebP, no compressed BMP, no PGM and PPM as text. Grey, CMYK and transparent images become RGB, as with Pillow's
// convert("RGB"): transparency is dropped. Of samples of 16 bits the upper byte is taken. The orientation of Exif is
// not applied, that of TIFF is, as with Pillow. Throws IoError for a file that cannot be read; FormatError, with the
// library's reason, for a damaged file (libjpeg's warnings that mean missing pixels count) and, before memory is
// allocated, for an image of more than kMaxPixels and a file too short for the pixels that it declares.
ImageSize read_image_size(const std::string& path);  // decodes only the header
Image read_image(const std::string& path);

// The same for the content of a file; `path` is its name in errors.
Image decode_image(std::string_view content, const std::string& path);

// JPEGs are decoded to at least this multiple of the size that is needed (Pillow's reducing_gap): of a whole image so
// that its pixels differ from torchvision's by a few levels, of random crops as fast as possible.
inline constexpr int64_t kDetail = 3, kCropDetail = 2;

class ImageReader;

// A part of an image scaled to `size`, of which `kept` (all, if it is empty) goes to `to`: (height, width, 3) bytes.
struct ImageCrop {
  ImagePart part;
  ImageSize size;
  uint8_t* to = nullptr;
  ImagePart kept = {};
  int64_t detail = kCropDetail;
  Interpolation how = Interpolation::bilinear;
};

// torchvision's Resize(shorter), CenterCrop(side): the shorter side is scaled to `shorter` (0: to `side`), and the
// middle is kept.
ImageCrop middle_square(ImageSize image, int64_t side, int64_t shorter = 0);

// The content of an image file, for what does not need the whole image. The content must outlive it; `path` is its
// name in errors. Each function throws FormatError as read_image.
class EncodedImage {
 public:
  // Reads the header. `upright`: turned as Exif says, as Pillow's exif_transpose.
  EncodedImage(std::string_view content, const std::string& path, bool upright = false);
  ~EncodedImage();

  ImageSize size() const;
  Image decode();

  // Resizes parts of the image, as resize_part does with the whole image. Decodes once what all of them need together,
  // and of a JPEG little more. One that is at least 2 `detail` times as high and as wide as its size is taken from the
  // image decoded to a half (4 `detail`: a quarter, 8 `detail`: an eighth), with the same edges there. So the result
  // for a part does not depend on the others. Parts must be inside of the image and not empty, sizes positive. Damage
  // is noted in what is decoded and above; below, only if a JPEG does not end with its marker.
  void crop(std::span<const ImageCrop> crops);

 private:
  int64_t reduction(const ImageCrop& crop) const;
  std::unique_ptr<ImageReader> reader_;
};

// A part of an image (inside of it and not empty), as Pillow's and torchvision's Resize, level for level:
// kernels/resample.h. Only what is kept is scaled. Each pixel of `image` stands for by x by, in which the part counts.
void resize_part(const Image& image, const ImageCrop& crop, int64_t by = 1);

Image resized(const Image& image, ImageSize size);
Image resized_and_cropped(const Image& image, int64_t side);  // its middle_square

std::vector<std::string> interpolations();                // their names
Interpolation interpolation_of(const std::string& name);  // throws UsageError for an unknown one

// Whether a path ends as one of kImageEndings, in either case.
bool is_image_path(const std::string& path);

// An image of this size: scaled, and cropped to a square if `size` is one, unless it has this size. Throws FormatError
// for one that is too narrow for a square.
struct ImageReading {
  bool upright = false;  // turned as Exif says, as Pillow's exif_transpose
  int64_t resize = 0;    // `shorter` of middle_square, for squares of any image
  Interpolation interpolation = Interpolation::bilinear;

  bool operator==(const ImageReading&) const = default;
};
Image read_image_as(const std::string& path, ImageSize size, const ImageReading& how = {});
Image decode_image_as(std::string_view content, const std::string& path, ImageSize size, const ImageReading& how = {});

// Writes (height, width, channels) bytes, of 3 channels or of 1: the luma of ITU-R 601, as with Pillow's convert("L").
void copy_pixels(const Image& image, int64_t channels, uint8_t* to);

}  // namespace ringtape
