#pragma once
#include <memory>
#include <string>
#include <string_view>

#include "train/data/image_file.h"

namespace ringtape {

// Reads the content of an image file, a format each. The content must outlive it.
class ImageReader {
 public:
  virtual ~ImageReader() = default;

  virtual ImageSize size() const = 0;
  virtual int64_t most_reduced() const { return 1; }  // how much smaller it can be decoded at most: 1, 2, 4 or 8 times
  // Decodes a part of the image reduced `by` so much, or a larger one that contains it; returns which. May be called
  // again.
  virtual ImagePart read(const ImagePart& part, int64_t by, Image& to) = 0;
};

// Copies a part of a picture that begins at `from`, whose rows are `row` bytes apart and pixels `pixel`, with red,
// green and blue first; either may be negative. Returns the part.
ImagePart cut(const uint8_t* from, int64_t row, int64_t pixel, const ImagePart& part, Image& to);

// Throws FormatError for too many pixels, and for a file that is shorter than units / per_byte bytes: by its format,
// one byte of the file holds at most `per_byte` of the `units` (blocks, bytes) that the image needs.
void check_image_size(const std::string& path, ImageSize size, int64_t units, int64_t per_byte,
                      std::string_view content);

// A reader for the format that the first bytes show, null if they show another. Throw FormatError as decode_image.
std::unique_ptr<ImageReader> open_jpeg(std::string_view content, const std::string& path);
std::unique_ptr<ImageReader> open_png(std::string_view content, const std::string& path);
std::unique_ptr<ImageReader> open_webp(std::string_view content, const std::string& path);
std::unique_ptr<ImageReader> open_tiff(std::string_view content, const std::string& path);
std::unique_ptr<ImageReader> open_bmp(std::string_view content, const std::string& path);
std::unique_ptr<ImageReader> open_pnm(std::string_view content, const std::string& path);

}  // namespace ringtape
