#pragma once
#include <vector>

#include "tests/fuzz/target.h"
#include "train/data/image/image_file.h"

namespace ringtape::test {

// An image as an image folder reads it.
inline void drive_image(std::string_view input) {
  constexpr int64_t kSide = 32;
  const MemoryFile file(input);
  read_or_refuse([&] {
    const ImageSize size = read_image_size(file.path());
    require(size.height > 0 && size.width > 0);
    const Image image = read_image(file.path());
    require(int64_t(image.rgb.size()) == image.size.height * image.size.width * 3 && image.size == size);
    require(resized_and_cropped(image, kSide).size == ImageSize{kSide, kSide});
    for (const ImageReading& how : {ImageReading(), {.resize = 40, .interpolation = Interpolation::bicubic}})
      require(read_image_as(file.path(), {kSide, kSide}, how).size == ImageSize{kSide, kSide});
  });
  read_or_refuse([&] {
    const std::string content(input);
    const Image whole = decode_image(content, "whole");
    const auto [height, width] = whole.size;
    require(EncodedImage(content, "turned", true).decode().rgb.size() == whole.rgb.size());
    EncodedImage image(content, "part");
    const ImagePart part{height / 3, width / 4, (height + 1) / 2, (width + 1) / 2};
    std::vector<uint8_t> got(3 * kSide * kSide), want(got);
    ImageCrop crop{.part = part, .size = {kSide, kSide}, .to = got.data(), .how = Interpolation(input.size() % 2)};
    if (part.height >= 4 * kSide && part.width >= 4 * kSide) return;  // of a reduced image
    image.crop({&crop, 1});
    crop.to = want.data();
    resize_part(whole, crop);
    require(got == want);
  });
}

}  // namespace ringtape::test
