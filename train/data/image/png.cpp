#include "train/data/image/png.h"

#include <png.h>

#include "core/check.h"

namespace ringtape {

std::string encode_png(const Tensor& pixels) {
  RT_CHECK_AS(ShapeError, pixels.rank() == 3 && (pixels.dim(2) == 1 || pixels.dim(2) == 3),
              "encode_png: expected pixels (H, W, 1 or 3), got ", pixels.shape());
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.height = png_uint_32(pixels.dim(0)), image.width = png_uint_32(pixels.dim(1));
  image.format = pixels.dim(2) == 3 ? PNG_FORMAT_RGB : PNG_FORMAT_GRAY;
  const uint8_t* const bytes = pixels.span<uint8_t>().data();
  png_alloc_size_t size = 0;
  std::string out;
  for (const bool counts : {true, false}) {  // the bytes, then writes them
    const bool done = png_image_write_to_memory(&image, counts ? nullptr : out.data(), &size, 0, bytes, 0, nullptr);
    RT_CHECK_AS(Error, done, "encode_png: ", image.message);
    out.resize(size);
  }
  return out;
}

}  // namespace ringtape
