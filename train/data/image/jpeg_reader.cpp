#include <csetjmp>
#include <cstdio>

// after <cstdio>, which it needs
#include <jerror.h>
#include <jpeglib.h>

#include <algorithm>
#include <vector>

#include "core/check.h"
#include "train/data/image/image_reader.h"

namespace ringtape {
namespace {

constexpr long kMaxScans = 500;  // per JPEG; libjpeg-turbo's own limit for untrusted files

struct JpegErrors : jpeg_error_mgr {
  std::jmp_buf escape;
  char message[JMSG_LENGTH_MAX];
};

[[noreturn]] void on_jpeg_error(j_common_ptr info) {
  auto* errors = static_cast<JpegErrors*>(info->err);
  errors->format_message(info, errors->message);
  std::longjmp(errors->escape, 1);
}
// Warnings have negative levels; most of them mean missing pixels. The others many programs' files give.
void on_jpeg_message(j_common_ptr info, int level) {
  constexpr int kHarmless[] = {JWRN_EXTRANEOUS_DATA, JWRN_JFIF_MAJOR, JWRN_ADOBE_XFORM, JWRN_NOT_SEQUENTIAL};
  const auto* const end = std::end(kHarmless);
  if (level < 0 && std::find(std::begin(kHarmless), end, info->err->msg_code) == end) on_jpeg_error(info);
}

// Each scan of a progressive file processes the whole image, even if it has only a few bytes.
void count_scans(j_common_ptr info) {
  if (!info->is_decompressor || reinterpret_cast<j_decompress_ptr>(info)->input_scan_number <= kMaxScans) return;
  auto* errors = static_cast<JpegErrors*>(info->err);
  std::snprintf(errors->message, sizeof errors->message, "more than %ld scans", kMaxScans);
  std::longjmp(errors->escape, 1);
}

class JpegReader : public ImageReader {
 public:
  JpegReader(std::string_view content, const std::string& path) : content_(content), path_(path) {
    info_.err = jpeg_std_error(&errors_);
    errors_.error_exit = on_jpeg_error;
    errors_.emit_message = on_jpeg_message;
    progress_.progress_monitor = count_scans;
  }
  void open() {
    guarded([&] {
      jpeg_create_decompress(&info_);
      info_.progress = &progress_;
      read_header();
    });
    // A block of 8 x 8 samples needs at least one bit (the code of its first coefficient), except with arithmetic
    // coding, which has no such limit.
    int64_t blocks = 0;
    for (int i = 0; i < info_.num_components && !info_.arith_code; ++i)
      blocks += int64_t(info_.comp_info[i].width_in_blocks) * int64_t(info_.comp_info[i].height_in_blocks);
    check_image_size(path_, size(), blocks, 8, content_);
  }
  ~JpegReader() override { jpeg_destroy_decompress(&info_); }
  JpegReader(const JpegReader&) = delete;
  JpegReader& operator=(const JpegReader&) = delete;

  ImageSize size() const override { return {int64_t(info_.image_height), int64_t(info_.image_width)}; }
  int64_t most_reduced() const override { return 8; }

  ImagePart read(const ImagePart& part, int64_t by, Image& to) override {
    begin(by);
    ImagePart held;
    crop_columns(part, held);
    held.top = std::max<int64_t>(part.top - kMargin, 0);
    held.height = part.top + part.height - held.top;
    const auto row_bytes = size_t(3 * held.width);
    to.size = {held.height, held.width};
    to.rgb.resize(row_bytes * size_t(held.height));
    line_.resize(size_t(info_.output_components) * info_.output_width);
    guarded([&] {
      skip_to(held.top);
      uint8_t* rgb = to.rgb.data();
      for (int64_t row = 0; row < held.height; ++row, rgb += row_bytes) {
        uint8_t* line = cmyk() ? line_.data() : rgb;
        jpeg_read_scanlines(&info_, &line, 1);
        if (cmyk()) mix(rgb, line, held.width);
      }
      finish();
    });
    return held;
  }

 private:
  // Pixels around a part that are decoded with it: the smooth upsampling of colours looks at neighbours.
  static constexpr int64_t kMargin = 8;

  bool cmyk() const { return info_.jpeg_color_space == JCS_CMYK || info_.jpeg_color_space == JCS_YCCK; }

  void read_header() {
    jpeg_mem_src(&info_, reinterpret_cast<const unsigned char*>(content_.data()), content_.size());
    jpeg_read_header(&info_, TRUE);
  }
  void begin(int64_t by) {
    guarded([&] {
      if (begun_) {
        jpeg_abort_decompress(&info_);
        read_header();
      }
      begun_ = true;
      info_.scale_num = 1, info_.scale_denom = unsigned(by);
      info_.out_color_space = cmyk() ? JCS_CMYK : JCS_RGB;
      jpeg_start_decompress(&info_);
    });
  }
  // Decodes no more columns than the part needs, whole blocks. Only with the usual sampling of colours: of the reduced
  // image with four pixels for one colour, libjpeg-turbo 2.1.5 gives others.
  void crop_columns(const ImagePart& part, ImagePart& held) {
    const int64_t width = int64_t(info_.output_width), from = std::max<int64_t>(part.left - kMargin, 0);
    JDIMENSION begin = unsigned(from), count = unsigned(std::min(part.left + part.width + kMargin, width) - from);
    bool usual = true;
    for (int i = 0; i < info_.num_components; ++i)
      usual = usual && info_.comp_info[i].h_samp_factor <= 2 && info_.comp_info[i].v_samp_factor <= 2;
    if (usual && int64_t(count) < width) guarded([&] { jpeg_crop_scanline(&info_, &begin, &count); });
    else begin = 0;
    held.left = int64_t(begin), held.width = int64_t(info_.output_width);
  }
  void skip_to(int64_t row) {
    if (row > int64_t(info_.output_scanline)) jpeg_skip_scanlines(&info_, unsigned(row) - info_.output_scanline);
  }
  // Rows below the part are not decoded, unless the file seems to be cut off: its end marker is missing.
  void finish() {
    if (info_.output_scanline < info_.output_height) {
      if (content_.ends_with("\xff\xd9")) return;
      skip_to(int64_t(info_.output_height) - 1);
      uint8_t* line = line_.data();
      jpeg_read_scanlines(&info_, &line, 1);
    }
    jpeg_finish_decompress(&info_);
  }

  // Runs f. libjpeg may leave f by longjmp, so f must not create objects with destructors.
  template <class F> void guarded(F&& f) {
    if (setjmp(errors_.escape)) detail::fail<FormatError>({path_, ": damaged JPEG data (", errors_.message, ")"});
    f();
  }
  // As Adobe's programs store it, with or without their marker: the remaining light instead of the amount of ink.
  static void mix(uint8_t* rgb, const uint8_t* light, int64_t pixels) {
    for (int64_t i = 0; i < pixels; ++i)
      for (int c = 0; c < 3; ++c) rgb[3 * i + c] = uint8_t((light[4 * i + c] * light[4 * i + 3] + 127) / 255);
  }

  const std::string_view content_;
  const std::string path_;
  JpegErrors errors_;
  jpeg_progress_mgr progress_{};
  jpeg_decompress_struct info_{};
  bool begun_ = false;
  std::vector<uint8_t> line_;
};

}  // namespace

std::unique_ptr<ImageReader> open_jpeg(std::string_view content, const std::string& path) {
  if (!content.starts_with("\xff\xd8")) return nullptr;
  auto reader = std::make_unique<JpegReader>(content, path);
  reader->open();
  return reader;
}

}  // namespace ringtape
