#pragma once
#include <memory>
#include <string>
#include <string_view>

#include "train/data/image/image_file.h"

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

// What TIFF's and Exif's orientations 1 to 8 say of a stored picture: whether its last row or column is to be seen
// first, and whether, then, its rows are to be seen as columns.
struct Orientation {
  int value = 1;
  bool last_row() const { return value == 3 || value == 4 || value == 6 || value == 7; }
  bool last_column() const { return value == 2 || value == 3 || value == 7 || value == 8; }
  bool turned() const { return value >= 5; }
  ImageSize seen(ImageSize stored) const { return turned() ? ImageSize{stored.width, stored.height} : stored; }
};
// As cut() of the picture that is to be seen, from the first pixel of the stored one.
ImagePart cut_seen(const uint8_t* stored, ImageSize size, int64_t pixel, Orientation o, const ImagePart& part,
                   Image& to);
// The image of a reader as it is to be seen.
std::unique_ptr<ImageReader> turn(std::unique_ptr<ImageReader> reader, Orientation orientation);

// Throws FormatError for too many pixels, and for a file that is shorter than units / per_byte bytes: by its format,
// one byte of the file holds at most `per_byte` of the `units` (blocks, bytes) that the image needs.
void check_image_size(const std::string& path, ImageSize size, int64_t units, int64_t per_byte,
                      std::string_view content);
// The same for formats in which a byte may stand for any number of pixels of one colour. Such files are whole, but who
// fills a memory with them is stopped.
void check_pixels_per_byte(const std::string& path, ImageSize size, std::string_view content);

// A reader for the format that the first bytes show, null if they show another. Throw FormatError as decode_image.
std::unique_ptr<ImageReader> open_jpeg(std::string_view content, const std::string& path);
std::unique_ptr<ImageReader> open_png(std::string_view content, const std::string& path);
std::unique_ptr<ImageReader> open_webp(std::string_view content, const std::string& path);
std::unique_ptr<ImageReader> open_tiff(std::string_view content, const std::string& path);
std::unique_ptr<ImageReader> open_bmp(std::string_view content, const std::string& path);
std::unique_ptr<ImageReader> open_pnm(std::string_view content, const std::string& path);

}  // namespace ringtape
