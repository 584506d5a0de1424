#include <algorithm>
#include <cctype>

#include "core/check.h"
#include "train/data/image/image_reader.h"

namespace ringtape {
namespace {

// Binary PGM (P5) and PPM (P6), of one or two bytes per sample.
class PnmReader : public ImageReader {
 public:
  PnmReader(std::string_view content, const std::string& path)
      : content_(content), path_(path), channels_(content[1] == '6' ? 3 : 1) {
    size_.width = number("width"), size_.height = number("height"), most_ = number("maximum");
    RT_CHECK_AS(FormatError, size_.width > 0 && size_.height > 0 && most_ > 0 && most_ < 65536, path_,
                ": damaged PNM data (", size_.width, " x ", size_.height, " pixels up to ", most_, ")");
    RT_CHECK_AS(FormatError, at_ < content_.size() && space(content_[at_]), path_,
                ": damaged PNM data (no space after the maximum)");
    ++at_;
    const int64_t bytes = size_.width * size_.height * channels_ * sample();
    check_image_size(path_, size_, bytes, 1, content_);
    RT_CHECK_AS(FormatError, bytes <= int64_t(content_.size() - at_), path_, ": damaged PNM data (",
                content_.size() - at_, " bytes of pixels, expected ", bytes, ")");
  }

  ImageSize size() const override { return size_; }

  ImagePart read(const ImagePart& part, int64_t, Image& to) override {
    to.size = {part.height, part.width};
    to.rgb.resize(size_t(3 * part.height * part.width));
    uint8_t* y = to.rgb.data();
    for (int64_t row = part.top; row < part.top + part.height; ++row) {
      const char* x = content_.data() + at_ + size_t((row * size_.width + part.left) * channels_ * sample());
      for (int64_t i = 0; i < part.width; ++i, y += 3, x += channels_ * sample())
        for (int64_t c = 0; c < 3; ++c) y[c] = level(x + (channels_ == 3 ? c : 0) * sample());
    }
    return part;
  }

 private:
  static bool space(char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; }
  int64_t sample() const { return most_ < 256 ? 1 : 2; }
  uint8_t level(const char* x) const {
    int64_t value = uint8_t(x[0]);
    if (most_ == 255) return uint8_t(value);
    if (most_ > 255) value = value << 8 | uint8_t(x[1]);
    const int64_t scaled = std::min(value, most_) * 255, below = scaled / most_, rest = 2 * (scaled % most_);
    return uint8_t(below + (rest > most_ || (rest == most_ && below % 2 == 1)));  // ties to even, as Pillow
  }

  // The next number of the header, after space and comments.
  int64_t number(const char* what) {
    while (at_ < content_.size() && (space(content_[at_]) || content_[at_] == '#'))
      if (content_[at_] == '#') at_ = std::min(content_.find('\n', at_), content_.size());
      else ++at_;
    constexpr size_t kMaxDigits = 9;
    int64_t value = 0;
    const size_t begin = at_;
    for (; at_ < content_.size() && content_[at_] >= '0' && content_[at_] <= '9'; ++at_)
      if (at_ < begin + kMaxDigits) value = 10 * value + (content_[at_] - '0');
    RT_CHECK_AS(FormatError, at_ > begin && at_ <= begin + kMaxDigits, path_, ": damaged PNM data (no ", what, ")");
    return value;
  }

  const std::string_view content_;
  const std::string path_;
  const int64_t channels_;
  size_t at_ = 2;  // of the next byte of the header; then of the first pixel
  ImageSize size_;
  int64_t most_ = 255;
};

}  // namespace

std::unique_ptr<ImageReader> open_pnm(std::string_view content, const std::string& path) {
  if (content.size() < 3 || content[0] != 'P' || (content[1] != '5' && content[1] != '6') ||
      !std::isspace(static_cast<unsigned char>(content[2])))
    return nullptr;
  return std::make_unique<PnmReader>(content, path);
}

}  // namespace ringtape
