// Parts of images straight from encoded files: the same bytes as of the whole image.
#include <gtest/gtest.h>

#include <random>

#include "kernels/random_view_pixels.h"
#include "tests/support/isas.h"
#include "tests/support/jpeg.h"
#include "tests/support/support.h"
#include "train/data/image_file.h"

namespace ringtape {
namespace {

// Noise over a gradient: every pixel matters.
std::vector<uint8_t> noisy(int width, int height, int channels) {
  std::mt19937 draw(uint32_t(width * 1000 + height));
  std::vector<uint8_t> out;
  for (int y = 0; y < height; ++y)
    for (int x = 0; x < width; ++x)
      for (int c = 0; c < channels; ++c) out.push_back(uint8_t(64 + x / 2 + y / 3 + 20 * c + int(draw() % 64)));
  return out;
}

Image cropped(EncodedImage& image, const ImagePart& part, ImageSize size) {
  Image out{size, std::vector<uint8_t>(size_t(3 * size.height * size.width))};
  const ImageCrop crop{part, size, out.rgb.data()};
  image.crop({&crop, 1});
  return out;
}
Image resized_part(const Image& image, const ImagePart& part, ImageSize size) {
  Image out{size, std::vector<uint8_t>(size_t(3 * size.height * size.width))};
  resize_part(image, part, size, out.rgb.data());
  return out;
}

ImagePart any_part(std::mt19937& draw, ImageSize size) {
  const auto below = [&](int64_t n) { return int64_t(draw() % uint32_t(n)); };
  ImagePart part;
  part.height = 1 + below(size.height), part.width = 1 + below(size.width);
  part.top = below(size.height - part.height + 1), part.left = below(size.width - part.width + 1);
  return part;
}

// One axis after the other, columns first, by the definition.
Image plainly_resized(const Image& image, const ImagePart& part, ImageSize size) {
  Image narrow{{part.height, size.width}, {}}, out{size, {}};
  for (int64_t y = 0; y < part.height; ++y)
    for (int64_t i = 0; i < size.width; ++i)
      for (int64_t c = 0; c < 3; ++c) {
        const Taps t = taps_of(part.width, size.width, i);
        int32_t sum = 0;
        for (int64_t x = t.first; x < t.end; ++x)
          sum += weight(t, part.width, size.width, i, x) *
                 image.rgb[size_t(3 * ((part.top + y) * image.size.width + part.left + x) + c)];
        narrow.rgb.push_back(resampled(sum));
      }
  for (int64_t i = 0; i < size.height; ++i)
    for (int64_t at = 0; at < 3 * size.width; ++at) {
      const Taps t = taps_of(part.height, size.height, i);
      int32_t sum = 0;
      for (int64_t y = t.first; y < t.end; ++y)
        sum += weight(t, part.height, size.height, i, y) * narrow.rgb[size_t(3 * y * size.width + at)];
      out.rgb.push_back(resampled(sum));
    }
  return out;
}

TEST(ImageCrop, ResizingIsTheDefinition) {
  std::mt19937 draw(1);
  for (const ImageSize size : {ImageSize{40, 50}, {1, 1}, {3, 700}, {300, 5}, {64, 64}}) {
    const Image image{size, noisy(int(size.width), int(size.height), 3)};
    for (const ImageSize to : {ImageSize{1, 1}, {2, 4}, {7, 5}, {33, 32}, {64, 130}})
      for (int i = 0; i < 8; ++i) {
        ImagePart part = i == 0 ? ImagePart{0, 0, size.height, size.width} : any_part(draw, size);
        if (i >= 6 && to.height <= size.height) part.top = size.height - to.height, part.height = to.height;
        if (i == 7 && to.width <= size.width) part.left = 0, part.width = to.width;
        const Image want = plainly_resized(image, part, to);
        test::with_every_isa([&] {
          ASSERT_EQ(resized_part(image, part, to).rgb, want.rgb)
              << part.height << " x " << part.width << " to " << to.height << " x " << to.width;
        });
      }
  }
}

struct Kind {
  const char* name;
  test::JpegOptions options;
};
const Kind kKinds[] = {{"4:4:4", {.quality = 90}},
                       {"4:2:2", {.quality = 90, .across = 2}},
                       {"4:4:0", {.quality = 90, .down = 2}},
                       {"4:2:0", {.quality = 90, .across = 2, .down = 2}},
                       {"4:1:1", {.quality = 90, .across = 4}},
                       {"4:1:0", {.quality = 90, .across = 4, .down = 2}},
                       {"grey", {.from = JCS_GRAYSCALE, .quality = 90}},
                       {"inks", {.from = JCS_CMYK, .quality = 90}},
                       {"inks, 4:2:0", {.from = JCS_CMYK, .quality = 90, .across = 2, .down = 2}},
                       {"progressive", {.progressive = true, .quality = 90, .across = 2, .down = 2}},
                       {"progressive grey", {.from = JCS_GRAYSCALE, .progressive = true, .quality = 90}}};

TEST(ImageCrop, APartOfAJpegIsThatOfTheWhole) {
  std::mt19937 draw(2);
  for (const Kind& kind : kKinds)
    for (const auto& [width, height] : {std::pair{1, 1}, {7, 3}, {16, 16}, {131, 97}, {160, 144}}) {
      SCOPED_TRACE(concat(kind.name, ", ", width, " x ", height));
      const int channels = kind.options.from == JCS_RGB ? 3 : kind.options.from == JCS_CMYK ? 4 : 1;
      const std::string file = test::jpeg_file(width, height, noisy(width, height, channels), kind.options);
      const Image whole = decode_image(file, "whole");
      EncodedImage image(file, "part");
      for (int i = 0; i < 60; ++i) {
        const ImagePart part = any_part(draw, whole.size);
        const ImageSize own{part.height, part.width};
        ASSERT_EQ(cropped(image, part, own).rgb, resized_part(whole, part, own).rgb)
            << part.top << ", " << part.left << ": " << part.height << " x " << part.width;
      }
    }
}

// Large parts are taken from a reduced image, with the same rule for each however many are asked for.
TEST(ImageCrop, LargePartsAreTakenFromAReducedImage) {
  std::mt19937 draw(3);
  for (const Kind& kind : kKinds) {
    SCOPED_TRACE(kind.name);
    const int channels = kind.options.from == JCS_RGB ? 3 : kind.options.from == JCS_CMYK ? 4 : 1;
    const int width = 203, height = 170;
    const std::string file = test::jpeg_file(width, height, noisy(width, height, channels), kind.options);
    EncodedImage image(file, "part");
    const Image by[] = {decode_image(file, "1"), decode_image(file, "2", height / 2),
                        decode_image(file, "4", height / 4), decode_image(file, "8", height / 8)};
    ASSERT_EQ(by[3].size, (ImageSize{22, 26}));
    std::vector<ImageCrop> crops;
    std::vector<Image> want;
    for (int i = 0; i < 60; ++i) {
      const ImagePart part = any_part(draw, {height, width});
      const ImageSize size{3, 4};
      int64_t k = 0;
      while (k < 3 && part.height >= (4 << k) * size.height && part.width >= (4 << k) * size.width) ++k;
      const auto at = [&](int64_t x, int64_t most) { return std::min((x + (1 << k) / 2) >> k, most); };
      ImagePart there{at(part.top, by[k].size.height), at(part.left, by[k].size.width), 0, 0};
      there.height = at(part.top + part.height, by[k].size.height) - there.top;
      there.width = at(part.left + part.width, by[k].size.width) - there.left;
      want.push_back(resized_part(by[k], there, size));
      ASSERT_EQ(cropped(image, part, size).rgb, want.back().rgb) << k;
      crops.push_back({part, size, nullptr});
    }
    std::vector<Image> got(crops.size());
    for (size_t i = 0; i < crops.size(); ++i) got[i].rgb.resize(36), crops[i].to = got[i].rgb.data();
    image.crop(crops);
    for (size_t i = 0; i < crops.size(); ++i) EXPECT_EQ(got[i].rgb, want[i].rgb) << i;
  }
}

TEST(ImageCrop, ATruncatedFileIsRefusedWhereverThePartIs) {
  const std::string file = test::jpeg_file(200, 200, noisy(200, 200, 3), {.quality = 90, .across = 2, .down = 2});
  for (const size_t bytes : {file.size() - 1, file.size() - 2, file.size() - 40, file.size() / 2}) {
    const std::string part = file.substr(0, bytes);
    EncodedImage image(part, "short.jpg");
    for (const int64_t top : {0, 100, 190})
      EXPECT_MENTIONS(test::message_of<FormatError>([&] {
                        cropped(image, {top, 20, 10, 10}, {10, 10});
                      }),
                      "short.jpg: damaged JPEG data (");
  }
}

}  // namespace
}  // namespace ringtape
