// WebP, TIFF, BMP, PGM and PPM: what is read of each, as Pillow reads it, and what is refused.
#include <gtest/gtest.h>
#include <tiffio.h>
#include <webp/decode.h>
#include <webp/encode.h>

#include <filesystem>

#include "tests/support/jpeg.h"
#include "tests/support/processes.h"
#include "tests/support/support.h"
#include "train/data/image/image_file.h"
#include "train/io/file.h"

namespace ringtape {
namespace {

using test::message_of;

constexpr int kWidth = 21, kHeight = 17;

std::vector<uint8_t> picture(int channels, int width = kWidth, int height = kHeight) {
  std::vector<uint8_t> out;
  for (int y = 0; y < height; ++y)
    for (int x = 0; x < width; ++x)
      for (int c = 0; c < channels; ++c) out.push_back(uint8_t(9 * x + 5 * y + 60 * c + x * y % 7));
  return out;
}

// `of(pixel, channel)` for each byte of an RGB image.
template <class F> std::vector<uint8_t> rgb(F&& of) {
  std::vector<uint8_t> out;
  for (int i = 0; i < kWidth * kHeight; ++i)
    for (int c = 0; c < 3; ++c) out.push_back(uint8_t(of(i, c)));
  return out;
}

std::string little(uint64_t value, int bytes) {
  std::string out;
  for (int i = 0; i < bytes; ++i) out += char(value >> (8 * i));
  return out;
}

// A BMP file: `more` follows the header of 40 bytes (masks, palette), then the rows, the last one first.
std::string bmp(int bits, const std::string& more, const std::string& rows, int compression = 0, int width = kWidth,
                int height = kHeight) {
  const std::string header = little(40, 4) + little(uint32_t(width), 4) + little(uint32_t(height), 4) + little(1, 2) +
                             little(uint64_t(bits), 2) + little(uint64_t(compression), 4) + std::string(20, '\0');
  return "BM" + little(0, 8) + little(14 + header.size() + more.size(), 4) + header + more + rows;
}
// Rows of `bytes` per pixel, padded to multiples of 4; f(x, y) gives a pixel's number.
template <class F> std::string bmp_rows(int bytes, F&& f) {
  std::string out;
  for (int y = kHeight - 1; y >= 0; --y) {
    for (int x = 0; x < kWidth; ++x) out += little(f(x, y), bytes);
    while (out.size() % 4 != 0) out += '\0';
  }
  return out;
}

std::string webp(const std::vector<uint8_t>& bytes, bool alpha) {
  uint8_t* out = nullptr;
  const size_t size = alpha ? WebPEncodeLosslessRGBA(bytes.data(), kWidth, kHeight, 4 * kWidth, &out)
                            : WebPEncodeLosslessRGB(bytes.data(), kWidth, kHeight, 3 * kWidth, &out);
  const std::string file(reinterpret_cast<char*>(out), size);
  WebPFree(out);
  return file;
}

struct TiffOptions {
  int samples = 3, bits = 8;
  int photometric = PHOTOMETRIC_RGB, compression = COMPRESSION_NONE, planar = PLANARCONFIG_CONTIG;
  int orientation = 0;
  bool tiled = false, clear_alpha = false;
  const char* mode = "w";
};

std::string tiff(const std::vector<uint8_t>& bytes, TiffOptions o = {}) {
  const test::TemporaryFolder folder;
  const std::string path = folder.path() + "/a.tif";
  TIFF* const file = TIFFOpen(path.c_str(), o.mode);
  TIFFSetField(file, TIFFTAG_IMAGEWIDTH, kWidth), TIFFSetField(file, TIFFTAG_IMAGELENGTH, kHeight);
  TIFFSetField(file, TIFFTAG_SAMPLESPERPIXEL, o.samples), TIFFSetField(file, TIFFTAG_BITSPERSAMPLE, o.bits);
  TIFFSetField(file, TIFFTAG_PHOTOMETRIC, o.photometric), TIFFSetField(file, TIFFTAG_COMPRESSION, o.compression);
  TIFFSetField(file, TIFFTAG_PLANARCONFIG, o.planar);
  if (o.orientation) TIFFSetField(file, TIFFTAG_ORIENTATION, o.orientation);
  if (o.clear_alpha) {
    const uint16_t kind = EXTRASAMPLE_UNASSALPHA;
    TIFFSetField(file, TIFFTAG_EXTRASAMPLES, 1, &kind);
  }
  if (o.photometric == PHOTOMETRIC_PALETTE) {
    std::vector<uint16_t> map[3];
    for (int c = 0; c < 3; ++c)
      for (int i = 0; i < 1 << o.bits; ++i) map[c].push_back(uint16_t((7 * i + 50 * c) % 256 * 257));
    TIFFSetField(file, TIFFTAG_COLORMAP, map[0].data(), map[1].data(), map[2].data());
  }
  const size_t row = (size_t(kWidth * o.samples * o.bits) + 7) / 8;
  if (o.tiled) {
    TIFFSetField(file, TIFFTAG_TILEWIDTH, 16), TIFFSetField(file, TIFFTAG_TILELENGTH, 16);
    for (int y = 0; y < kHeight; y += 16)
      for (int x = 0; x < kWidth; x += 16) {
        std::vector<uint8_t> tile(size_t(16 * 16 * o.samples));
        for (int r = 0; r < std::min(16, kHeight - y); ++r)
          std::copy_n(bytes.data() + ((y + r) * kWidth + x) * o.samples, std::min(16, kWidth - x) * o.samples,
                      tile.data() + 16 * r * o.samples);
        TIFFWriteTile(file, tile.data(), uint32_t(x), uint32_t(y), 0, 0);
      }
  } else {
    TIFFSetField(file, TIFFTAG_ROWSPERSTRIP, 8);
    for (int y = 0; y < kHeight; ++y)
      TIFFWriteScanline(file, const_cast<uint8_t*>(bytes.data()) + size_t(y) * row, uint32_t(y), 0);
  }
  TIFFClose(file);
  return read_file(path);
}

void expect_read(const std::string& file, const std::vector<uint8_t>& want, int tolerance = 0,
                 ImageSize size = {kHeight, kWidth}) {
  const Image image = decode_image(file, "a");
  ASSERT_EQ(image.size, size);
  ASSERT_EQ(EncodedImage(file, "a").size(), size);
  for (size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(image.rgb[i], want[i], tolerance) << "byte " << i;
  std::vector<uint8_t> part(4 * 6 * 3);
  const ImageCrop crop{{3, 5, 4, 6}, {4, 6}, part.data()};
  EncodedImage encoded(file, "a");
  for (int again = 0; again < 2; ++again) {
    encoded.crop({&crop, 1});
    for (int64_t y = 0; y < 4; ++y)
      for (int64_t i = 0; i < 18; ++i)
        ASSERT_EQ(part[size_t(18 * y + i)], image.rgb[size_t(3 * ((3 + y) * size.width + 5) + i)]);
  }
}

std::string refused(const std::string& file) {
  const std::string message = message_of<FormatError>([&] { decode_image(file, "dir/a.img"); });
  EXPECT_TRUE(message.starts_with("dir/a.img: ")) << message;
  EXPECT_EQ(message.find('\n'), std::string::npos);
  return message;
}

TEST(ImageFormats, WebpIsReadWithoutItsTransparency) {
  const std::vector<uint8_t> colours = picture(3), clear = picture(4);
  expect_read(webp(colours, false), colours);
  std::vector<uint8_t> half = clear;
  for (size_t i = 3; i < half.size(); i += 4) half[i] = uint8_t(1 + i % 255);
  expect_read(webp(half, true), rgb([&](int i, int c) { return half[size_t(4 * i + c)]; }));
  uint8_t* out = nullptr;
  const size_t size = WebPEncodeRGB(colours.data(), kWidth, kHeight, 3 * kWidth, 90, &out);
  const std::string lossy(reinterpret_cast<char*>(out), size);
  WebPFree(out);
  int width = 0, height = 0;
  uint8_t* const decoded = WebPDecodeRGB(reinterpret_cast<const uint8_t*>(lossy.data()), size, &width, &height);
  expect_read(lossy, std::vector<uint8_t>(decoded, decoded + 3 * width * height));
  WebPFree(decoded);
  std::string animated = "RIFF" + little(22, 4) + "WEBPVP8X" + little(10, 4) + '\2' + std::string(3, '\0') +
                         little(kWidth - 1, 3) + little(kHeight - 1, 3);
  EXPECT_MENTIONS(refused(animated), "an animated WebP file");
}

TEST(ImageFormats, TiffIsReadInEveryLayout) {
  const std::vector<uint8_t> colours = picture(3), grey = picture(1), four = picture(4);
  const std::vector<uint8_t> grey_rgb = rgb([&](int i, int) { return grey[size_t(i)]; });
  for (const int compression : {COMPRESSION_NONE, COMPRESSION_LZW, COMPRESSION_PACKBITS, COMPRESSION_ADOBE_DEFLATE}) {
    SCOPED_TRACE(compression);
    expect_read(tiff(colours, {.compression = compression}), colours);
    expect_read(tiff(colours, {.compression = compression, .tiled = true}), colours);
    for (const char* mode : {"wl", "wb", "wl8", "wb8"})  // byte orders; 8: BigTIFF
      expect_read(tiff(colours, {.compression = compression, .mode = mode}), colours);
    expect_read(tiff(grey, {.samples = 1, .photometric = PHOTOMETRIC_MINISBLACK, .compression = compression}),
                grey_rgb);
  }
  expect_read(tiff(grey, {.samples = 1, .photometric = PHOTOMETRIC_MINISWHITE}),
              rgb([&](int i, int) { return 255 - grey[size_t(i)]; }));
  expect_read(tiff(grey, {.samples = 1, .photometric = PHOTOMETRIC_PALETTE}),
              rgb([&](int i, int c) { return (7 * grey[size_t(i)] + 50 * c) % 256; }));
  for (const bool clear : {false, true})  // colours are not multiplied by the opacity
    expect_read(tiff(four, {.samples = 4, .clear_alpha = clear}),
                rgb([&](int i, int c) { return four[size_t(4 * i + c)]; }));
  expect_read(
      tiff(four, {.samples = 4, .photometric = PHOTOMETRIC_SEPARATED}),
      rgb([&](int i, int c) { return (255 - four[size_t(4 * i + c)]) * (255 - four[size_t(4 * i + 3)]) / 255.0; }), 1);
  expect_read(tiff(colours, {.compression = COMPRESSION_JPEG}), colours, 60);
  const auto wide = [](const std::vector<uint8_t>& bytes) {  // of 16 bits, in this machine's order
    std::vector<uint8_t> out;
    for (const uint8_t byte : bytes) out.push_back(255), out.push_back(byte);
    return out;
  };
  expect_read(tiff(wide(colours), {.bits = 16}), colours);
  expect_read(tiff(wide(grey), {.samples = 1, .bits = 16, .photometric = PHOTOMETRIC_MINISBLACK}), grey_rgb);
  std::vector<uint8_t> bits(size_t(kHeight) * 3);
  for (size_t i = 0; i < bits.size(); ++i) bits[i] = uint8_t(i * 37);
  for (const int compression : {COMPRESSION_NONE, COMPRESSION_CCITTFAX4})
    expect_read(
        tiff(bits, {.samples = 1, .bits = 1, .photometric = PHOTOMETRIC_MINISBLACK, .compression = compression}),
        rgb([&](int i, int) {
          return bits[size_t(i / kWidth * 3 + i % kWidth / 8)] >> (7 - i % kWidth % 8) & 1 ? 255 : 0;
        }));
}

TEST(ImageFormats, ATiffIsTurnedAsItSays) {
  const std::vector<uint8_t> colours = picture(3);
  for (int orientation = 1; orientation <= 8; ++orientation) {
    SCOPED_TRACE(orientation);
    const bool turned = orientation >= 5;
    const ImageSize size = turned ? ImageSize{kWidth, kHeight} : ImageSize{kHeight, kWidth};
    std::vector<uint8_t> want;
    for (int64_t y = 0; y < size.height; ++y)
      for (int64_t x = 0; x < size.width; ++x) {
        int64_t row = turned ? x : y, column = turned ? y : x;  // in the file: TIFF 6.0, p. 36
        if (orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8) column = kWidth - 1 - column;
        if (orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7) row = kHeight - 1 - row;
        for (int64_t c = 0; c < 3; ++c) want.push_back(colours[size_t(3 * (row * kWidth + column) + c)]);
      }
    expect_read(tiff(colours, {.orientation = orientation}), want, 0, size);
  }
}

TEST(ImageFormats, TiffOfOtherKindsIsRefused) {
  EXPECT_MENTIONS(refused(tiff(picture(3), {.photometric = PHOTOMETRIC_CIELAB})), "photometric interpretation 8");
  EXPECT_MENTIONS(refused(tiff(picture(12), {.samples = 3, .bits = 32})), "3 samples of 32 bits");
  for (const int bands : {3, 4, 13})
    EXPECT_MENTIONS(refused(tiff(picture(bands), {.samples = bands, .photometric = PHOTOMETRIC_MINISBLACK})),
                    concat("a TIFF image of ", bands, " bands; expected 1 to 2 for grey, as it says it is"));
  EXPECT_MENTIONS(refused(tiff(picture(7), {.samples = 7})), "7 bands; expected 3 to 6 for RGB");
  EXPECT_MENTIONS(refused(tiff(picture(2), {.samples = 2})), "2 bands; expected 3 to 6 for RGB");
  std::string other = tiff(picture(3));
  const size_t tag = other.find(std::string("\3\1\3\0\1\0\0\0\1\0", 10));  // compression, a SHORT: 1
  ASSERT_NE(tag, std::string::npos);
  other[tag + 8] = 99;
  EXPECT_MENTIONS(refused(other), "TIFF data of compression 99; expected none");
}

TEST(ImageFormats, BmpIsReadWithEveryDepth) {
  const std::vector<uint8_t> colours = picture(3), grey = picture(1);
  const auto colour = [&](int x, int y, int c) { return colours[size_t(3 * (y * kWidth + x) + c)]; };
  const std::string rows = bmp_rows(3, [&](int x, int y) {
    return uint64_t(colour(x, y, 2)) | uint64_t(colour(x, y, 1)) << 8 | uint64_t(colour(x, y, 0)) << 16;
  });
  expect_read(bmp(24, "", rows), colours);
  std::string down;
  const size_t row = rows.size() / kHeight;
  for (size_t y = kHeight; y-- > 0;) down += rows.substr(y * row, row);
  expect_read(bmp(24, "", down, 0, kWidth, -kHeight), colours);  // the first row first
  expect_read(bmp(32, "",
                  bmp_rows(4,
                           [&](int x, int y) {
                             return uint64_t(colour(x, y, 2)) | uint64_t(colour(x, y, 1)) << 8 |
                                    uint64_t(colour(x, y, 0)) << 16 | uint64_t{77} << 24;
                           })),
              colours);
  expect_read(bmp(32, little(0xff000000, 4) + little(0xff0000, 4) + little(0xff00, 4),
                  bmp_rows(4,
                           [&](int x, int y) {
                             return uint64_t(colour(x, y, 2)) << 8 | uint64_t(colour(x, y, 1)) << 16 |
                                    uint64_t(colour(x, y, 0)) << 24;
                           }),
                  3),
              colours);
  const auto few = [&](int x, int y) {
    return uint64_t(colour(x, y, 0) >> 3) << 11 | uint64_t(colour(x, y, 1) >> 2) << 5 | uint64_t(colour(x, y, 2) >> 3);
  };
  expect_read(bmp(16, little(0xf800, 4) + little(0x7e0, 4) + little(0x1f, 4), bmp_rows(2, few), 3),
              rgb([&](int i, int c) {
                const int byte = colours[size_t(3 * i + c)];
                return c == 1 ? (byte >> 2) * 255 / 63 : (byte >> 3) * 255 / 31;
              }));
  std::string palette;
  for (int i = 0; i < 256; ++i) palette += little(uint64_t(i * 3 % 256 | (255 - i) << 8 | (i ^ 85) << 16), 4);
  const auto shade = [&](int x, int y) { return grey[size_t(y * kWidth + x)]; };
  expect_read(bmp(8, palette, bmp_rows(1, shade)), rgb([&](int i, int c) {
                const int at = grey[size_t(i)];
                return c == 0 ? at ^ 85 : c == 1 ? 255 - at : at * 3 % 256;
              }));
  std::string bits;
  for (int y = kHeight - 1; y >= 0; --y) {
    for (int x = 0; x < kWidth; x += 8) {
      int byte = 0;
      for (int k = 0; k < 8 && x + k < kWidth; ++k) byte |= (shade(x + k, y) >> 7) << (7 - k);
      bits += char(byte);
    }
    bits += '\0';
  }
  expect_read(bmp(1, little(0x102030, 4) + little(0xffeedd, 4), bits), rgb([&](int i, int c) {
                constexpr int kEntries[2][3] = {{0x10, 0x20, 0x30}, {0xff, 0xee, 0xdd}};
                return kEntries[grey[size_t(i)] >> 7][c];
              }));
  EXPECT_MENTIONS(refused(bmp(8, palette, bmp_rows(1, shade), 1)), "BMP data of compression 1; only uncompressed");
  EXPECT_MENTIONS(refused(bmp(7, "", rows)), "damaged BMP data (7 bits per pixel)");
  EXPECT_MENTIONS(refused(bmp(24, "", rows, 0, 0)), "damaged BMP data (0 x 17 pixels)");
  EXPECT_MENTIONS(refused(bmp(32, little(0xf0f, 4) + std::string(8, '\0'), bmp_rows(4, few), 3)), "(the mask 3855)");
}

TEST(ImageFormats, PgmAndPpmAreRead) {
  const std::vector<uint8_t> colours = picture(3), grey = picture(1);
  const std::string text(colours.begin(), colours.end()), shades(grey.begin(), grey.end());
  const std::vector<uint8_t> grey_rgb = rgb([&](int i, int) { return grey[size_t(i)]; });
  expect_read("P6\n21 17\n255\n" + text, colours);
  expect_read("P6 # of a camera\n#\n21\t17\r255 " + text, colours);
  expect_read("P5 21 17 255\n" + shades, grey_rgb);
  std::string wide, few;
  for (const char c : shades) wide += c, wide += c, few += char(uint8_t(c) % 8);
  expect_read("P5 21 17 65535\n" + wide, grey_rgb);
  expect_read("P5 21 17 7\n" + few, rgb([&](int i, int) { return (grey[size_t(i)] % 8 * 510 + 7) / 14; }));
  EXPECT_MENTIONS(refused("P6 21 17 255\n" + text.substr(1)), "1070 bytes of pixels, expected 1071");
  EXPECT_MENTIONS(refused("P6 21 17 70000\n" + text), "21 x 17 pixels up to 70000");
  EXPECT_MENTIONS(refused("P6 21 0 255\n" + text), "damaged PNM data (21 x 0 pixels");
  EXPECT_MENTIONS(refused("P6 21 -7 255\n" + text), "damaged PNM data (no height)");
  EXPECT_MENTIONS(refused("P6 21 17 255#" + text), "no space after the maximum");
  EXPECT_MENTIONS(refused("P3 1 1 255 0 0 0"), "no image (it begins like none of ");
}

// Cut off at every byte a file is refused, or has all its pixels (what is missing is no pixel).
TEST(ImageFormats, WhatIsCutOffIsRefused) {
  const std::vector<uint8_t> colours = picture(3), four = picture(4), grey = picture(1);
  const std::string text(colours.begin(), colours.end());
  uint8_t* out = nullptr;
  const size_t size = WebPEncodeRGB(colours.data(), kWidth, kHeight, 3 * kWidth, 80, &out);
  const std::string lossy(reinterpret_cast<char*>(out), size);
  WebPFree(out);
  struct File {
    const char* name;
    std::string content;
  };
  const File files[] = {
      {"webp", webp(colours, false)},
      {"webp, clear", webp(four, true)},
      {"webp, lossy", lossy},
      {"tiff", tiff(colours)},
      {"tiff, lzw", tiff(colours, {.compression = COMPRESSION_LZW})},
      {"tiff, deflate, tiled", tiff(colours, {.compression = COMPRESSION_ADOBE_DEFLATE, .tiled = true})},
      {"tiff, jpeg", tiff(colours, {.compression = COMPRESSION_JPEG})},
      {"tiff, packbits",
       tiff(grey, {.samples = 1, .photometric = PHOTOMETRIC_PALETTE, .compression = COMPRESSION_PACKBITS})},
      {"bmp", bmp(24, "", std::string(64 * kHeight, 'x'))},
      {"ppm", "P6 21 17 255\n" + text},
      {"jpeg", test::jpeg_file(kWidth, kHeight, colours, {.quality = 80, .across = 2, .down = 2})}};
  for (const auto& [name, content] : files) {
    const Image whole = decode_image(content, name);
    int read = 0;
    for (size_t bytes = 0; bytes < content.size(); ++bytes) {
      const std::string part = content.substr(0, bytes);  // in memory of its own: a sanitizer sees what is behind
      try {
        const Image image = decode_image(part, "part");
        EXPECT_EQ(image.rgb, whole.rgb) << name << ", " << bytes << " of " << content.size();
        ++read;
      } catch (const FormatError& e) {
        EXPECT_TRUE(std::string(e.what()).starts_with("part: ")) << e.what();
      }
    }
    EXPECT_LE(read, 12) << name;
  }
}

// Headers of 2^31 pixels and more.
TEST(ImageFormats, HugeSizesAreRefused) {
  const uint64_t huge = 1u << 31;
  EXPECT_MENTIONS(refused(bmp(24, "", "x", 0, INT32_MAX, INT32_MAX)), "at most 67108864 are supported");
  EXPECT_MENTIONS(refused(bmp(24, "", "x", 0, 8000, INT32_MIN)), "8000 x 2147483648 pixels");
  EXPECT_MENTIONS(refused(bmp(24, "", "x", 0, 8000, 8000)), "it needs 192000054");
  EXPECT_MENTIONS(refused("P6 2147483648 2 255\nx"), "damaged PNM data (no width)");
  EXPECT_MENTIONS(refused("P6 99999999 99999999 255\nx"), "at most 67108864");
  EXPECT_MENTIONS(refused("P5 8000 8000 255\nx"), "which cannot hold so many");
  const auto entry = [](int tag, uint64_t value) {
    return little(uint64_t(tag), 2) + little(4, 2) + little(1, 4) + little(value, 4);
  };
  const auto header = [&](uint64_t width, uint64_t height) {
    return "II*" + std::string(1, '\0') + little(8, 4) + little(4, 2) + entry(256, width) + entry(257, height) +
           entry(273, 8) + entry(279, 100) + little(0, 4);
  };
  EXPECT_MENTIONS(refused(header(huge, huge)), "2147483648 x 2147483648 pixels; at most");
  EXPECT_MENTIONS(refused(header(8000, 8000)), "which cannot hold so many");
  const auto lossless = [](uint64_t width, uint64_t height) {
    return "RIFF" + little(22, 4) + "WEBPVP8L" + little(10, 4) + '\x2f' + little((width - 1) | (height - 1) << 14, 4) +
           std::string(5, '\0');
  };
  EXPECT_MENTIONS(refused(lossless(16384, 16384)), "16384 x 16384 pixels; at most");
  // That is not called damaged: all pixels may have one colour.
  EXPECT_MENTIONS(refused(lossless(8000, 8000)), "8000 x 8000 pixels in only 30 bytes; of more than 16777216 pixels");
  EXPECT_MENTIONS(refused(lossless(4000, 4000)), "damaged WebP data");
  const std::string tiles = "II*" + std::string(1, '\0') + little(8, 4) + little(7, 2) + entry(256, 64) +
                            entry(257, 64) + entry(259, COMPRESSION_LZW) + entry(322, 1 << 20) + entry(323, 1 << 20) +
                            entry(324, 8) + entry(325, 100) + little(0, 4);
  EXPECT_MENTIONS(refused(tiles), "damaged TIFF data (tiles of 1048576 x 1048576 pixels)");
}

TEST(ImageFormats, ImagesAreKnownByTheirEndings) {
  for (const char* name : {"a.jpg", "a.JPEG", "b/a.b.Png", "a.webp", "a.tif", "a.TIFF", "a.bmp", "a.pgm", "a.ppm"})
    EXPECT_TRUE(is_image_path(name)) << name;
  for (const char* name : {"a", "a.", "a.jp", "a.gif", "jpg", ".jpg", "a.jpg/b", "a.or", "a.jpg,", ""})
    EXPECT_FALSE(is_image_path(name)) << name;
}

}  // namespace
}  // namespace ringtape
