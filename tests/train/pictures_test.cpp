// Image files beside Pillow: tests/fixtures/make_pictures.py.
#include <gtest/gtest.h>

#include "tests/support/support.h"
#include "train/data/image_file.h"
#include "train/io/safetensors.h"

namespace ringtape {
namespace {

const std::string kFixtures = RINGTAPE_SOURCE_DIR "/tests/fixtures/";

std::string_view bytes_of(const Tensor& x) {
  return {reinterpret_cast<const char*>(x.data<uint8_t>()), size_t(x.size())};
}

// Calls f(name, file, pixels) for each file of a kind; returns their number.
template <class F>
int each_picture(const std::string& kind, F&& f) {
  static const Safetensors all = read_safetensors(kFixtures + "pictures.safetensors");
  int number = 0;
  for (const auto& [name, file] : all.tensors) {
    if (!name.starts_with(kind + "/") || !name.ends_with("/file")) continue;
    const std::string picture = name.substr(0, name.size() - 5);
    SCOPED_TRACE(picture);
    f(picture, bytes_of(file), all[picture + "/rgb"]);
    ++number;
  }
  return number;
}

void expect_pixels(std::string_view file, const std::string& name, const Tensor& want) {
  const Image image = decode_image(file, name);
  ASSERT_EQ(image.size, (ImageSize{want.dim(0), want.dim(1)}));
  const std::string_view bytes = bytes_of(want);
  ASSERT_EQ(image.rgb, std::vector<uint8_t>(bytes.begin(), bytes.end()));
  const ImagePart part{1, 2, image.size.height - 3, image.size.width - 4};
  std::vector<uint8_t> got(size_t(3 * part.height * part.width)), wanted(got);
  const ImageCrop crop{part, {part.height, part.width}, got.data()};
  resize_part(image, part, crop.size, wanted.data());
  EncodedImage encoded(file, name);
  for (int again = 0; again < 2; ++again) {
    encoded.crop({&crop, 1});
    ASSERT_EQ(got, wanted);
  }
}

TEST(Pictures, PngsOfEveryKindAreThoseOfPillow) {
  EXPECT_GE(each_picture("png", [](const std::string& name, std::string_view file,
                                   const Tensor& want) { expect_pixels(file, name, want); }),
            60);
}

}  // namespace
}  // namespace ringtape
