// Parts of images straight from encoded files: the same bytes as of the whole image.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "kernels/random_view_pixels.h"
#include "tests/support/isas.h"
#include "tests/support/jpeg.h"
#include "tests/support/support.h"
#include "train/data/image/image_file.h"
#include "train/data/image/image_reader.h"

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
Image resized_part(const Image& image, const ImagePart& part, ImageSize size, Interpolation how = {}) {
  Image out{size, std::vector<uint8_t>(size_t(3 * size.height * size.width))};
  resize_part(image, {.part = part, .size = size, .to = out.rgb.data(), .how = how});
  return out;
}

ImagePart any_part(std::mt19937& draw, ImageSize size) {
  const auto below = [&](int64_t n) { return int64_t(draw() % uint32_t(n)); };
  ImagePart part;
  part.height = 1 + below(size.height), part.width = 1 + below(size.width);
  part.top = below(size.height - part.height + 1), part.left = below(size.width - part.width + 1);
  return part;
}

// One axis after the other, columns first, by the definition. A pixel stands for by x by.
Image plainly_resized(const Image& image, const ImagePart& part, ImageSize size, int64_t by = 1,
                      Interpolation how = {}) {
  const ScaledAxis rows{part.height, size.height, by, part.top % by, how},
      columns{part.width, size.width, by, part.left % by, how};
  Image narrow{{rows.pixels(), size.width}, {}}, out{size, {}};
  for (int64_t y = 0; y < rows.pixels(); ++y)
    for (int64_t i = 0; i < size.width; ++i)
      for (int64_t c = 0; c < 3; ++c) {
        const Taps t = taps_of(columns, i);
        int32_t sum = 0;
        for (int64_t x = t.first; x < t.end; ++x)
          sum += weight(t, columns, i, x) *
                 image.rgb[size_t(3 * ((part.top / by + y) * image.size.width + part.left / by + x) + c)];
        narrow.rgb.push_back(resampled(sum));
      }
  for (int64_t i = 0; i < size.height; ++i)
    for (int64_t at = 0; at < 3 * size.width; ++at) {
      const Taps t = taps_of(rows, i);
      int32_t sum = 0;
      for (int64_t y = t.first; y < t.end; ++y)
        sum += weight(t, rows, i, y) * narrow.rgb[size_t(3 * y * size.width + at)];
      out.rgb.push_back(resampled(sum));
    }
  return out;
}

Image decoded(const std::string& file, ImageSize size, int64_t by) {
  Image out;
  open_jpeg(file, "reduced")->read({0, 0, (size.height + by - 1) / by, (size.width + by - 1) / by}, by, out);
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
        for (const Interpolation how : {Interpolation::bilinear, Interpolation::bicubic}) {
          const Image want = plainly_resized(image, part, to, 1, how);
          test::with_every_isa([&] {
            ASSERT_EQ(resized_part(image, part, to, how).rgb, want.rgb)
                << part.height << " x " << part.width << " to " << to.height << " x " << to.width << ", " << int(how);
          });
        }
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

// Of pixels that stand for several, the weights are the integral numbers next to a triangle's (Pillow's box).
TEST(ImageCrop, EdgesMayLieWithinPixels) {
  for (const int64_t by : {2, 4, 8})
    for (int64_t before = 0; before < by; ++before)
      for (int64_t from = 1; from <= 70; ++from)
        for (const int64_t to : {1, 3, 8, 40}) {
          const ScaledAxis axis{from, to, by, before};
          const double scale = double(from) / double(by * to), reach = std::max(scale, 1.0);
          for (int64_t i = 0; i < to; ++i) {
            const double centre = double(before) / double(by) + (double(i) + 0.5) * scale;
            const auto triangle = [&](int64_t x) {
              return std::max(0.0, 1 - std::abs((double(x) + 0.5 - centre) / reach));
            };
            double sum = 0;
            for (int64_t x = 0; x < axis.pixels(); ++x) sum += triangle(x);
            const Taps t = taps_of(axis, i);
            ASSERT_LE(t.end - t.first, most_taps(axis));
            for (int64_t x = 0; x < axis.pixels(); ++x) {
              const int32_t got = x >= t.first && x < t.end ? weight(t, axis, i, x) : 0;
              ASSERT_NEAR(got, triangle(x) / sum * (1 << kTapBits), 0.5 + 1e-6)
                  << from << " to " << to << " by " << by << ", pixel " << i << " from " << x;
            }
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
    const Image by[] = {decoded(file, image.size(), 1), decoded(file, image.size(), 2), decoded(file, image.size(), 4),
                        decoded(file, image.size(), 8)};
    ASSERT_EQ(by[3].size, (ImageSize{22, 26}));
    std::vector<ImageCrop> crops;
    std::vector<Image> want;
    for (int i = 0; i < 60; ++i) {
      const ImagePart part = any_part(draw, {height, width});
      const ImageSize size{3, 4};
      int64_t k = 0;
      while (k < 3 && part.height >= (4 << k) * size.height && part.width >= (4 << k) * size.width) ++k;
      want.push_back(plainly_resized(by[k], part, size, int64_t{1} << k));
      ASSERT_EQ(cropped(image, part, size).rgb, want.back().rgb) << k;
      crops.push_back({part, size, nullptr});
    }
    std::vector<Image> got(crops.size());
    for (size_t i = 0; i < crops.size(); ++i) got[i].rgb.resize(36), crops[i].to = got[i].rgb.data();
    image.crop(crops);
    for (size_t i = 0; i < crops.size(); ++i) EXPECT_EQ(got[i].rgb, want[i].rgb) << i;
  }
}

// Sums of two functions, of rows and of columns, each with details of all sizes (1/f).
std::vector<uint8_t> landscape(int width, int height) {
  std::mt19937 draw(7);
  const auto profile = [&](int length) {
    std::vector<double> sums(size_t(length), 64);
    for (int grain = 256; grain >= 2; grain /= 2) {
      std::vector<double> knots;
      for (int i = 0; i <= length / grain + 1; ++i) knots.push_back(double(draw() % 32) - 15.5);
      for (int i = 0; i < length; ++i)
        sums[size_t(i)] += std::lerp(knots[size_t(i / grain)], knots[size_t(i / grain + 1)], double(i % grain) / grain);
    }
    std::vector<uint8_t> out;
    for (const double sum : sums) out.push_back(uint8_t(std::clamp(sum, 0.0, 127.0)));
    return out;
  };
  std::vector<uint8_t> columns(size_t(3 * width)), out(size_t(3 * width) * size_t(height));
  for (int c = 0; c < 3; ++c) {
    const std::vector<uint8_t> colour = profile(width);
    for (int x = 0; x < width; ++x) columns[size_t(3 * x + c)] = colour[size_t(x)];
  }
  uint8_t* to = out.data();
  for (const uint8_t row : profile(height))
    for (const uint8_t column : columns) *to++ = uint8_t(row + column);
  return out;
}

// Of a JPEG that is decoded smaller, lengths and edges are those of the original.
TEST(ImageCrop, AReducedJpegKeepsItsGeometry) {
  constexpr std::pair<int, int> kSizes[] = {
      {500, 375},   {375, 500},   {500, 333},   {333, 500},   {513, 513},   {1023, 769}, {769, 1023},
      {640, 480},   {480, 640},   {1024, 768},  {800, 600},   {1280, 720},  {1280, 853}, {1600, 1067},
      {1920, 1080}, {2048, 1365}, {2048, 1536}, {4000, 2250}, {3000, 2000}, {512, 512},  {300, 400},
      {427, 640},   {641, 427},   {1000, 667},  {259, 194},   {2592, 1944}};
  for (const auto& [width, height] : kSizes) {
    const std::string file =
        test::jpeg_file(width, height, landscape(width, height), {.quality = 90, .across = 2, .down = 2});
    const Image whole = decode_image(file, "whole");
    for (const int64_t side : {32, 48, 64, 224}) {
      if (side > std::min(width, height)) continue;
      SCOPED_TRACE(concat(width, " x ", height, " to ", side));
      const Image want = resized_and_cropped(whole, side), got = decode_image_as(file, "reduced", {side, side});
      double sum = 0;
      for (size_t i = 0; i < want.rgb.size(); ++i) {
        const int apart = std::abs(want.rgb[i] - got.rgb[i]);
        ASSERT_LE(apart, 10) << "byte " << i;
        sum += apart;
      }
      EXPECT_LE(sum, 1.5 * double(want.rgb.size()));
    }
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
