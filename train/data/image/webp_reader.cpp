#include <webp/decode.h>

#include <algorithm>

#include "core/check.h"
#include "train/data/image/image_reader.h"

namespace ringtape {
namespace {

const char* reason(VP8StatusCode status) {
  switch (status) {
    case VP8_STATUS_OUT_OF_MEMORY: return "out of memory";
    case VP8_STATUS_UNSUPPORTED_FEATURE: return "unsupported feature";
    case VP8_STATUS_SUSPENDED:
    case VP8_STATUS_NOT_ENOUGH_DATA: return "the data is cut off";
    default: return "invalid bit stream";
  }
}

class WebpReader : public ImageReader {
 public:
  WebpReader(std::string_view content, const std::string& path) : content_(content), path_(path) {
    check(WebPGetFeatures(data(), content.size(), &features_));
    RT_CHECK_AS(FormatError, !features_.has_animation, path, ": an animated WebP file; expected one image");
    check_pixels_per_byte(path, size(), content);
  }

  ImageSize size() const override { return {features_.height, features_.width}; }

  ImagePart read(const ImagePart&, int64_t, Image& to) override {
    const ImagePart all{0, 0, size().height, size().width};
    WebPDecoderConfig config;
    RT_CHECK(WebPInitDecoderConfig(&config), "libwebp is not the version that ringtape was compiled for");
    to.size = size();
    to.rgb.resize(size_t(3 * all.height * all.width));
    config.output.colorspace = MODE_RGB;
    config.output.is_external_memory = 1;
    config.output.u.RGBA = {to.rgb.data(), int(3 * all.width), to.rgb.size()};
    check(WebPDecode(data(), content_.size(), &config));
    return all;
  }

 private:
  const uint8_t* data() const { return reinterpret_cast<const uint8_t*>(content_.data()); }
  void check(VP8StatusCode status) const {
    RT_CHECK_AS(FormatError, status == VP8_STATUS_OK, path_, ": damaged WebP data (", reason(status), ")");
  }

  const std::string_view content_;
  const std::string path_;
  WebPBitstreamFeatures features_{};
};

}  // namespace

std::unique_ptr<ImageReader> open_webp(std::string_view content, const std::string& path) {
  if (!content.starts_with("RIFF") || content.substr(std::min<size_t>(content.size(), 8), 4) != "WEBP") return nullptr;
  return std::make_unique<WebpReader>(content, path);
}

}  // namespace ringtape
