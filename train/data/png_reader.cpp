#include <png.h>

#include <vector>

#include "core/check.h"
#include "train/data/image_reader.h"
#include "train/io/sizes.h"

namespace ringtape {
namespace {

class PngReader : public ImageReader {
 public:
  PngReader(std::string_view content, const std::string& path) : content_(content), path_(path) {}
  ~PngReader() override { png_image_free(&image_); }
  PngReader(const PngReader&) = delete;
  PngReader& operator=(const PngReader&) = delete;

  void open() {
    begin();
    RT_CHECK_AS(FormatError, content_.compare(12, 4, "IHDR") == 0, path_,
                ": damaged PNG data (it does not begin with IHDR)");
    const int64_t depth = content_[24], type = content_[25],
                  samples = type == 2   ? 3
                            : type == 4 ? 2
                            : type == 6 ? 4
                                        : 1;
    check_image_size(path_, size(), size().width * size().height * samples * depth / 8, kDeflateRatio, content_);
  }

  ImageSize size() const override { return {int64_t(image_.height), int64_t(image_.width)}; }

  ImagePart read(const ImagePart& part, int64_t, Image& to) override {
    if (begun_) begin();
    begun_ = true;
    image_.format = PNG_FORMAT_RGBA;
    image_.flags |= PNG_IMAGE_FLAG_16BIT_sRGB;
    rgba_.resize(PNG_IMAGE_SIZE(image_));
    check(png_image_finish_read(&image_, nullptr, rgba_.data(), 0, nullptr));
    return cut(rgba_.data(), size().width * 4, 4, part, to);
  }

 private:
  void begin() {
    png_image_free(&image_);
    image_ = {};
    image_.version = PNG_IMAGE_VERSION;
    check(png_image_begin_read_from_memory(&image_, content_.data(), content_.size()));
  }
  void check(int success) const {
    RT_CHECK_AS(FormatError, success && !PNG_IMAGE_FAILED(image_), path_, ": damaged PNG data (", image_.message, ")");
  }

  const std::string_view content_;
  const std::string path_;
  png_image image_{};
  bool begun_ = false;
  std::vector<uint8_t> rgba_;
};

}  // namespace

std::unique_ptr<ImageReader> open_png(std::string_view content, const std::string& path) {
  if (!content.starts_with("\x89PNG")) return nullptr;
  auto reader = std::make_unique<PngReader>(content, path);
  reader->open();
  return reader;
}

}  // namespace ringtape
