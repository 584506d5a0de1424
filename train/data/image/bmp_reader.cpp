#include <algorithm>
#include <array>
#include <bit>
#include <vector>

#include "core/check.h"
#include "train/data/image/image_reader.h"

namespace ringtape {
namespace {

constexpr int64_t kFileHeader = 14;

// Uncompressed BMP: the headers of OS/2 1.x and of Windows 3 to 5, as Pillow reads them. A fourth channel is dropped.
class BmpReader : public ImageReader {
 public:
  BmpReader(std::string_view content, const std::string& path) : content_(content), path_(path) {
    need(kFileHeader + 4);
    pixels_ = number(10, 4), header_ = number(kFileHeader, 4);
    const bool old = header_ == 12;
    RT_CHECK_AS(FormatError, old || (header_ >= 40 && header_ <= 256), path_, ": damaged BMP data (a header of ",
                header_, " bytes)");
    need(kFileHeader + header_);
    size_.width = old ? number(18, 2) : int32_t(number(18, 4));
    size_.height = old ? number(20, 2) : int32_t(number(22, 4));
    bits_ = number(old ? 24 : 28, 2);
    const int64_t compression = old ? 0 : number(30, 4);
    upwards_ = size_.height > 0;
    size_.height = std::abs(size_.height);
    RT_CHECK_AS(FormatError, size_.width > 0 && size_.height > 0, path_, ": damaged BMP data (", size_.width, " x ",
                size_.height, " pixels)");
    RT_CHECK_AS(FormatError, bits_ == 1 || bits_ == 4 || bits_ == 8 || bits_ == 16 || bits_ == 24 || bits_ == 32, path_,
                ": damaged BMP data (", bits_, " bits per pixel)");
    RT_CHECK_AS(FormatError, compression == 0 || (compression == 3 && (bits_ == 16 || bits_ == 32)), path_,
                ": BMP data of compression ", compression, "; only uncompressed BMP is read");
    check_image_size(path_, size_, 0, 1, content_);
    need(pixels_ + size_.height * row_bytes());
    if (bits_ <= 8) read_palette(old);
    else if (bits_ != 24) read_masks(compression == 3);
  }

  ImageSize size() const override { return size_; }

  ImagePart read(const ImagePart& part, int64_t, Image& to) override {
    to.size = {part.height, part.width};
    to.rgb.resize(size_t(3 * part.height * part.width));
    uint8_t* y = to.rgb.data();
    for (int64_t row = part.top; row < part.top + part.height; ++row) {
      const int64_t line = pixels_ + (upwards_ ? size_.height - 1 - row : row) * row_bytes();
      for (int64_t i = part.left; i < part.left + part.width; ++i, y += 3) put(y, line, i);
    }
    return part;
  }

 private:
  struct Mask {
    uint32_t bits = 0;
    uint8_t of(uint32_t pixel) const {  // scaled to 0..255
      if (bits == 0) return 0;
      const int shift = std::countr_zero(bits);
      return uint8_t(uint64_t((pixel & bits) >> shift) * 255 / (bits >> shift));
    }
  };

  int64_t row_bytes() const { return (size_.width * bits_ + 31) / 32 * 4; }
  uint8_t byte(int64_t at) const { return uint8_t(content_[size_t(at)]); }
  int64_t number(int64_t at, int bytes) const {
    int64_t value = 0;
    for (int i = bytes - 1; i >= 0; --i) value = value << 8 | byte(at + i);
    return value;
  }
  void need(int64_t bytes) const {
    RT_CHECK_AS(FormatError, bytes <= int64_t(content_.size()), path_, ": damaged BMP data (the file has ",
                content_.size(), " bytes, it needs ", bytes, ")");
  }

  void read_palette(bool old) {
    const int64_t entry = old ? 3 : 4, most = int64_t{1} << bits_, begin = kFileHeader + header_;
    const int64_t told = old ? 0 : number(46, 4);
    int64_t count = told > 0 ? std::min(told, most) : most;
    if (pixels_ >= begin) count = std::min(count, (pixels_ - begin) / entry);
    need(begin + count * entry);
    for (int64_t i = 0; i < count; ++i)
      for (int c = 0; c < 3; ++c) palette_[size_t(i)][size_t(c)] = byte(begin + i * entry + 2 - c);
  }
  void read_masks(bool given) {
    constexpr uint32_t k16[] = {0x7c00, 0x3e0, 0x1f}, k32[] = {0xff0000, 0xff00, 0xff};
    if (given) need(kFileHeader + 40 + 12);
    for (int c = 0; c < 3; ++c) {
      Mask& mask = masks_[size_t(c)];
      mask.bits = given ? uint32_t(number(kFileHeader + 40 + 4 * c, 4)) : bits_ == 16 ? k16[c] : k32[c];
      const uint32_t run = mask.bits == 0 ? 0 : mask.bits >> std::countr_zero(mask.bits);
      RT_CHECK_AS(FormatError, (run & (run + 1)) == 0, path_, ": damaged BMP data (the mask ", mask.bits, ")");
    }
  }

  void put(uint8_t* y, int64_t line, int64_t i) const {
    if (bits_ == 24) {
      for (int c = 0; c < 3; ++c) y[c] = byte(line + 3 * i + 2 - c);
    } else if (bits_ > 8) {
      const auto pixel = uint32_t(number(line + i * bits_ / 8, int(bits_ / 8)));
      for (size_t c = 0; c < 3; ++c) y[c] = masks_[c].of(pixel);
    } else {
      const int64_t per_byte = 8 / bits_, shift = 8 - bits_ * (i % per_byte + 1);
      const auto index = size_t((byte(line + i / per_byte) >> shift) & ((1 << bits_) - 1));
      std::copy_n(palette_[index].begin(), 3, y);
    }
  }

  const std::string_view content_;
  const std::string path_;
  int64_t header_ = 0, pixels_ = 0, bits_ = 0;
  bool upwards_ = true;
  ImageSize size_;
  std::array<std::array<uint8_t, 3>, 256> palette_{};  // black, where the file has no entry
  std::array<Mask, 3> masks_;
};

}  // namespace

std::unique_ptr<ImageReader> open_bmp(std::string_view content, const std::string& path) {
  if (!content.starts_with("BM")) return nullptr;
  return std::make_unique<BmpReader>(content, path);
}

}  // namespace ringtape
