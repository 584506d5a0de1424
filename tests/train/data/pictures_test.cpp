// Image files beside Pillow: tests/fixtures/make_pictures.py.
#include <gtest/gtest.h>

#include "tests/support/support.h"
#include "train/data/image/exif.h"
#include "train/data/image/image_file.h"
#include "train/io/safetensors.h"

namespace ringtape {
namespace {

constexpr Interpolation kBilinear = Interpolation::bilinear, kBicubic = Interpolation::bicubic;
const std::string kFixtures = RINGTAPE_SOURCE_DIR "/tests/fixtures/";

std::string_view bytes_of(const Tensor& x) {
  return {reinterpret_cast<const char*>(x.data<uint8_t>()), size_t(x.size())};
}

const Safetensors& pictures() {
  static const Safetensors all = read_safetensors(kFixtures + "pictures.safetensors");
  return all;
}

// Calls f(name, file) for each file of a kind; returns their number.
template <class F> int each_picture(const std::string& kind, F&& f) {
  int number = 0;
  for (const auto& [name, file] : pictures().tensors) {
    if (!name.starts_with(kind + "/") || !name.ends_with("/file")) continue;
    const std::string picture = name.substr(0, name.size() - 5);
    SCOPED_TRACE(picture);
    f(picture, bytes_of(file));
    ++number;
  }
  return number;
}

void expect_pixels(const std::string& name, std::string_view file) {
  const Tensor& want = pictures()[name + "/rgb"];
  const Image image = decode_image(file, name);
  ASSERT_EQ(image.size, (ImageSize{want.dim(0), want.dim(1)}));
  const std::string_view bytes = bytes_of(want);
  ASSERT_EQ(image.rgb, std::vector<uint8_t>(bytes.begin(), bytes.end()));
  const ImagePart part{1, 2, image.size.height - 3, image.size.width - 4};
  std::vector<uint8_t> got(size_t(3 * part.height * part.width)), wanted(got);
  const ImageCrop crop{part, {part.height, part.width}, got.data()};
  resize_part(image, {part, crop.size, wanted.data()});
  EncodedImage encoded(file, name);
  for (int again = 0; again < 2; ++again) {
    encoded.crop({&crop, 1});
    ASSERT_EQ(got, wanted);
  }
}

TEST(Pictures, PngsOfEveryKindAreThoseOfPillow) { EXPECT_EQ(each_picture("png", expect_pixels), 64); }

// Also if libjpeg warns, of what costs no pixels.
TEST(Pictures, JpegsOfEveryKindAreThoseOfPillow) { EXPECT_EQ(each_picture("jpeg", expect_pixels), 10); }

TEST(Pictures, JpegsWithoutAllTheirPixelsAreRefused) {
  const auto message = [](const std::string& file) {
    return test::message_of<FormatError>([&] { decode_image(file, "a.jpg"); });
  };
  const std::string plain(bytes_of(pictures()["jpeg/plain/file"])),
      restarts(bytes_of(pictures()["jpeg/restarts/file"]));
  const auto end = [](const std::string& file, size_t bytes) { return file.substr(0, file.size() - bytes); };
  EXPECT_MENTIONS(message(end(plain, 2)), "a.jpg: damaged JPEG data (Premature end of JPEG file");
  EXPECT_MENTIONS(message(end(plain, 30) + "\xff\xd9"), "(Corrupt JPEG data: premature end of data segment)");
  std::string other = restarts;
  other[other.find("\xff\xd1") + 1] = '\xd5';
  EXPECT_MENTIONS(message(other), "(Corrupt JPEG data: found marker 0xd5 instead of RST1)");
}

TEST(Pictures, TiffsOfEveryKindAreThoseOfPillow) { EXPECT_EQ(each_picture("tiff", expect_pixels), 39); }

// As stored, and as Pillow's exif_transpose turns it.
TEST(Pictures, ImagesAreTurnedOnlyIfWanted) {
  const int number = each_picture("exif", [](const std::string& name, std::string_view file) {
    expect_pixels(name, file);
    const Tensor& want = pictures()[name + "/upright"];
    EncodedImage encoded(file, name, true);
    const Image image = encoded.decode();
    ASSERT_EQ(encoded.size(), (ImageSize{want.dim(0), want.dim(1)}));
    const std::string_view bytes = bytes_of(want);
    ASSERT_EQ(image.rgb, std::vector<uint8_t>(bytes.begin(), bytes.end()));
    std::vector<uint8_t> got(3 * 12 * 14), wanted(got);
    ImageCrop crop{{3, 5, 12, 14}, {12, 14}, got.data()};
    encoded.crop({&crop, 1});
    crop.to = wanted.data();
    resize_part(image, crop);
    ASSERT_EQ(got, wanted);
    const Image small = decode_image_as(file, name, {4, 4}, {.upright = true}), whole = resized_and_cropped(image, 4);
    for (size_t i = 0; i < small.rgb.size(); ++i) ASSERT_NEAR(small.rgb[i], whole.rgb[i], 2) << "byte " << i;
  });
  EXPECT_EQ(number, 18);
}

TEST(Pictures, AnOrientationIsSoughtWithinTheFile) {
  each_picture("exif", [](const std::string&, std::string_view file) {
    for (size_t bytes = 0; bytes < file.size(); bytes += 7) {
      const std::vector<char> part(file.begin(), file.begin() + std::ptrdiff_t(bytes));
      const int orientation = exif_orientation({part.data(), part.size()});
      ASSERT_TRUE(orientation >= 1 && orientation <= 8) << bytes;
    }
  });
}

// JPEGs are decoded to a half or less, so not to the level.
TEST(Pictures, JpegsAreScaledAsByTorchvision) {
  const int number = each_picture("scaled", [](const std::string& name, std::string_view file) {
    for (const auto& [side, how] : {std::pair{32, kBilinear}, {48, kBilinear}, {64, kBilinear}, {48, kBicubic}}) {
      const Image image = decode_image_as(file, name, {side, side}, {.interpolation = how});
      const uint8_t* const want =
          pictures()[concat(name, "/", side, how == kBicubic ? " bicubic" : "")].data<uint8_t>();
      double sum = 0;
      for (size_t i = 0; i < image.rgb.size(); ++i) {
        const int apart = std::abs(image.rgb[i] - want[i]);
        ASSERT_LE(apart, 4) << side << ", byte " << i;
        sum += apart;
      }
      EXPECT_LE(sum, 0.6 * double(image.rgb.size())) << side;
    }
  });
  EXPECT_EQ(number, 2);
}

TEST(Pictures, MiddlesAreThoseOfTorchvision) {
  const std::pair<int64_t, int64_t> all[] = {{24, 24}, {24, 21}, {32, 28}, {41, 41}, {41, 24}};
  const int number = each_picture("middle", [&all](const std::string& name, std::string_view file) {
    for (const auto& [shorter, side] : all)
      for (const char* how : {"", " bicubic"}) {
        const Interpolation interpolation = *how ? kBicubic : kBilinear;
        const Image image =
            decode_image_as(file, name, {side, side}, {.resize = shorter, .interpolation = interpolation});
        const std::string_view want = bytes_of(pictures()[concat(name, "/", shorter, " to ", side, how)]);
        ASSERT_EQ(image.rgb, std::vector<uint8_t>(want.begin(), want.end())) << shorter << " to " << side << how;
      }
  });
  EXPECT_EQ(number, 4);
}

}  // namespace
}  // namespace ringtape
