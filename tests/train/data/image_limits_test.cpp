// Image files that are made to be expensive: the memory must be limited by the size of the result, and by what a file
// of its length can contain.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>
#include <zlib.h>

#include <cmath>
#include <filesystem>

#include "tests/support/support.h"
#include "train/data/dataset.h"
#include "train/data/files/imagefolder.h"
#include "train/data/image/image_file.h"
#include "train/io/file.h"

namespace ringtape {
namespace {

namespace fs = std::filesystem;
using test::message_of;

std::string big_endian(uint32_t x) { return {char(x >> 24), char(x >> 16), char(x >> 8), char(x)}; }

std::string chunk(const std::string& type, const std::string& data) {
  const std::string body = type + data;
  return big_endian(uint32_t(data.size())) + body +
         big_endian(uint32_t(crc32(0, reinterpret_cast<const Bytef*>(body.data()), uInt(body.size()))));
}

std::string deflated(const std::string& data) {
  uLongf size = compressBound(data.size());
  std::string out(size, '\0');
  compress2(reinterpret_cast<Bytef*>(out.data()), &size, reinterpret_cast<const Bytef*>(data.data()), data.size(), 9);
  return out.substr(0, size);
}

// A grey image with 1 or 8 bits per pixel and these rows before compression, including filter bytes.
std::string png(int width, int height, int bits, const std::string& rows) {
  const std::string header =
      big_endian(uint32_t(width)) + big_endian(uint32_t(height)) + char(bits) + std::string(4, '\0');
  return "\x89PNG\r\n\x1a\n" + chunk("IHDR", header) + chunk("IDAT", deflated(rows)) + chunk("IEND", "");
}
std::string black(int width, int height) {
  return png(width, height, 1, std::string(size_t(height) * size_t(1 + (width + 7) / 8), '\0'));
}

// A frame header with three components (4 x 4 blocks of the first for one block of each other), and the beginning of a
// scan.
std::string jpeg_header(int width, int height) {
  const auto two = [](int x) { return std::string{char(x >> 8), char(x)}; };
  return "\xff\xd8" + std::string("\xff\xc0\x00\x11\x08", 5) + two(height) + two(width) +
         std::string("\x03\x01\x44\x00\x02\x11\x00\x03\x11\x00", 10) +
         std::string("\xff\xda\x00\x0c\x03\x01\x00\x02\x00\x03\x00\x00\x3f\x00", 14);
}

// The growth of this process's peak memory.
template <class F> int64_t peak_growth(F&& f) {
  const auto peak = [] {
    rusage usage{};
    ::getrusage(RUSAGE_SELF, &usage);
    return int64_t(usage.ru_maxrss) * 1024;
  };
  const int64_t before = peak();
  f();
  return peak() - before;
}

class ImageLimitsTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("ringtape_image_limits_" + std::to_string(::getpid()));
    fs::remove_all(folder_);
    for (const char* name : {"train/a", "test/a"}) fs::create_directories(folder_ / name);
  }
  void TearDown() override { fs::remove_all(folder_); }
  fs::path folder_;
};

constexpr int64_t kLittle = 64 << 20;

TEST_F(ImageLimitsTest, WhatIsCutOffIsNeverScaled) {
  for (const auto& [width, height] : {std::pair{1'000'000, 1}, {1, 1'000'000}, {200'000, 1}}) {
    const Image image = decode_image(black(width, height), "long.png");
    EXPECT_EQ(image.size, (ImageSize{height, width}));
    EXPECT_LT(peak_growth([&] {
                const Image out = resized_and_cropped(image, 224);
                EXPECT_EQ(out.size, (ImageSize{224, 224}));
                EXPECT_EQ(out.rgb, std::vector<uint8_t>(224 * 224 * 3, 0));
              }),
              kLittle);
  }
}

// The result has the same levels as scaling the whole image and cropping its centre, which is the definition.
TEST_F(ImageLimitsTest, ThePartIsThatOfTheWhole) {
  for (const ImageSize size : {ImageSize{37, 90}, {90, 37}, {40, 40}, {5, 301}, {8, 9}, {64, 33}})
    for (const int64_t side : {1, 5, 8, 33, 64}) {
      Image image{size, {}};
      for (int64_t i = 0; i < 3 * size.height * size.width; ++i) image.rgb.push_back(uint8_t(i * i * 7 + i % 5 * 31));
      const int64_t shorter = std::min(size.height, size.width);
      const ImageSize whole{side * size.height / shorter, side * size.width / shorter};
      const Image scaled = resized(image, whole), cut = resized_and_cropped(image, side);
      const auto top = int64_t(std::nearbyint(double(whole.height - side) / 2)),
                 left = int64_t(std::nearbyint(double(whole.width - side) / 2));
      ASSERT_EQ(cut.size, (ImageSize{side, side}));
      for (int64_t y = 0; y < side; ++y)
        for (int64_t i = 0; i < 3 * side; ++i)
          ASSERT_EQ(cut.rgb[size_t(3 * y * side + i)], scaled.rgb[size_t(3 * ((top + y) * whole.width + left) + i)])
              << size.height << " x " << size.width << " to " << side << ", row " << y << ", byte " << i;
    }
}

TEST_F(ImageLimitsTest, AFolderRefusesAnImageThatIsNearlyALine) {
  write_file((folder_ / "train/a/1.png").string(), black(40, 30));
  write_file((folder_ / "test/a/1.png").string(), black(200'000, 1));
  const auto load = [&] {
    find_dataset("imagefolder").load({.dir = folder_.string(), .settings = ImageFolderOptions{{.size = 224}}});
  };
  std::string message;
  EXPECT_LT(peak_growth([&] { message = message_of<FormatError>(load); }), kLittle);
  EXPECT_MENTIONS(message, "test/a/1.png: 200000 x 1 pixels");
  EXPECT_MENTIONS(message, "more than 1000 times the other");
  write_file((folder_ / "test/a/1.png").string(), black(1000, 1));
  EXPECT_NO_THROW(load());
}

// The header says 8000 x 8000, and the rest is very short.
TEST_F(ImageLimitsTest, FilesTooShortForTheirPixelsAreRefusedBeforeMemoryIsTaken) {
  for (const std::string& content :
       {png(8000, 8000, 1, "x"), png(8000, 8000, 8, std::string(100'000, '\0')), jpeg_header(8000, 8000)}) {
    std::string message;
    EXPECT_LT(peak_growth([&] { message = message_of<FormatError>([&] { decode_image(content, "bomb"); }); }),
              16 << 20);
    EXPECT_MENTIONS(message,
                    concat("bomb: 8000 x 8000 pixels in ", content.size(), " bytes, which cannot hold so many"));
  }
  EXPECT_MENTIONS(message_of<FormatError>([] { decode_image(png(8193, 8192, 1, "x"), "bomb"); }),
                  "at most 67108864 are supported");
}

// The compression of one colour by deflate is within the limit, so valid files of other programs are accepted.
TEST_F(ImageLimitsTest, OneColourIsRead) {
  for (const auto& [width, height] : {std::pair{1, 1}, {8, 8}, {3000, 2000}, {8192, 512}}) {
    const std::string content = black(width, height);
    EXPECT_EQ(decode_image(content, "flat").size, (ImageSize{height, width})) << content.size();
  }
}

}  // namespace
}  // namespace ringtape
