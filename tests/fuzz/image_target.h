#pragma once
#include "tests/fuzz/target.h"
#include "train/data/image_file.h"

namespace ringtape::test {

// An image as an image folder reads it.
inline void drive_image(std::string_view input) {
  constexpr int64_t kSide = 32;
  const MemoryFile file(input);
  read_or_refuse([&] {
    const ImageSize size = read_image_size(file.path());
    require(size.height > 0 && size.width > 0);
    for (const int64_t least : {2 * kSide, INT64_MAX}) {
      const Image image = read_image(file.path(), least);
      require(int64_t(image.rgb.size()) == image.size.height * image.size.width * 3 &&
              image.size.height <= size.height);
      const Image small = resized_and_cropped(image, kSide);
      require(small.size == ImageSize{kSide, kSide});
    }
  });
}

}  // namespace ringtape::test
