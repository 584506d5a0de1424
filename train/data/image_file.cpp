#include "train/data/image_file.h"

#include <csetjmp>
#include <cstdio>

// after <cstdio>, which it needs
#include <jpeglib.h>
#include <png.h>

#include <algorithm>
#include <cctype>
#include <filesystem>

#include "core/check.h"
#include "train/io/file.h"
#include "train/io/sizes.h"

namespace ringtape {
namespace {

constexpr long kMostScans = 500;  // per JPEG; libjpeg-turbo's own limit for untrusted files

// Throws FormatError for too many pixels, and for a file that is shorter than units / per_byte bytes: by its format,
// one byte of the file holds at most `per_byte` of the `units` (blocks, bytes) that the image needs.
void check_size(const std::string& path, ImageSize size, int64_t units, int64_t per_byte, const std::string& content) {
  RT_CHECK_AS(FormatError, size.width * size.height <= kMostPixels, path, ": ", size.width, " x ", size.height,
              " pixels; at most ", kMostPixels, " are supported");
  RT_CHECK_AS(FormatError, units / per_byte <= int64_t(content.size()), path, ": ", size.width, " x ", size.height,
              " pixels in ", content.size(), " bytes, which cannot hold so many; the file is damaged");
}

struct JpegErrors : jpeg_error_mgr {
  std::jmp_buf escape;
  char message[JMSG_LENGTH_MAX];
};

[[noreturn]] void on_jpeg_error(j_common_ptr info) {
  auto* errors = static_cast<JpegErrors*>(info->err);
  errors->format_message(info, errors->message);
  std::longjmp(errors->escape, 1);
}
void on_jpeg_message(j_common_ptr info, int level) {
  if (level < 0) on_jpeg_error(info);  // a warning; other levels are traces
}

// Each scan of a progressive file processes the whole image, even if it has only a few bytes.
void count_scans(j_common_ptr info) {
  if (!info->is_decompressor || reinterpret_cast<j_decompress_ptr>(info)->input_scan_number <= kMostScans) return;
  auto* errors = static_cast<JpegErrors*>(info->err);
  std::snprintf(errors->message, sizeof errors->message, "more than %ld scans", kMostScans);
  std::longjmp(errors->escape, 1);
}

class Jpeg {
 public:
  explicit Jpeg(const std::string& path) : path_(path) {
    info_.err = jpeg_std_error(&errors_);
    errors_.error_exit = on_jpeg_error;
    errors_.emit_message = on_jpeg_message;
    progress_.progress_monitor = count_scans;
  }
  void open(const std::string& content) {
    guarded([&] {
      jpeg_create_decompress(&info_);
      jpeg_mem_src(&info_, reinterpret_cast<const unsigned char*>(content.data()), content.size());
      info_.progress = &progress_;
      jpeg_read_header(&info_, TRUE);
    });
    // A block of 8 x 8 samples needs at least one bit (the code of its first coefficient), except with arithmetic
    // coding, which has no such limit.
    int64_t blocks = 0;
    for (int i = 0; i < info_.num_components && !info_.arith_code; ++i)
      blocks += int64_t(info_.comp_info[i].width_in_blocks) * int64_t(info_.comp_info[i].height_in_blocks);
    check_size(path_, size(), blocks, 8, content);
  }
  ~Jpeg() { jpeg_destroy_decompress(&info_); }
  Jpeg(const Jpeg&) = delete;
  Jpeg& operator=(const Jpeg&) = delete;

  ImageSize size() const { return {int64_t(info_.image_height), int64_t(info_.image_width)}; }

  Image decode(int64_t least) {
    const int64_t shorter = std::min(size().height, size().width);
    info_.scale_denom = 1;
    while (info_.scale_denom < 8 && shorter / (2 * int64_t(info_.scale_denom)) >= least) info_.scale_denom *= 2;
    const bool cmyk = info_.jpeg_color_space == JCS_CMYK || info_.jpeg_color_space == JCS_YCCK;
    info_.out_color_space = cmyk ? JCS_CMYK : JCS_RGB;
    guarded([&] { jpeg_start_decompress(&info_); });
    Image out{{int64_t(info_.output_height), int64_t(info_.output_width)}, {}};
    const auto row_bytes = size_t(3 * out.size.width);
    out.rgb.resize(row_bytes * size_t(out.size.height));
    std::vector<uint8_t> inks(size_t(cmyk ? 4 * out.size.width : 0));
    guarded([&] {
      while (info_.output_scanline < info_.output_height) {
        uint8_t* const row = out.rgb.data() + info_.output_scanline * row_bytes;
        uint8_t* to = cmyk ? inks.data() : row;
        jpeg_read_scanlines(&info_, &to, 1);
        if (cmyk) mix(row, inks.data(), out.size.width);
      }
      jpeg_finish_decompress(&info_);
    });
    return out;
  }

 private:
  // Runs f. libjpeg may leave f by longjmp, so f must not create objects with destructors.
  template <class F>
  void guarded(F&& f) {
    if (setjmp(errors_.escape)) detail::fail<FormatError>(path_, ": damaged JPEG data (", errors_.message, ")");
    f();
  }
  // Adobe's files store inverted values: the remaining light instead of the amount of ink.
  void mix(uint8_t* rgb, const uint8_t* inks, int64_t pixels) const {
    const int flip = info_.saw_Adobe_marker ? 0 : 255;
    for (int64_t i = 0; i < pixels; ++i)
      for (int c = 0; c < 3; ++c)
        rgb[3 * i + c] = uint8_t(((inks[4 * i + c] ^ flip) * (inks[4 * i + 3] ^ flip) + 127) / 255);
  }

  const std::string& path_;
  JpegErrors errors_;
  jpeg_progress_mgr progress_{};
  jpeg_decompress_struct info_{};
};

class Png {
 public:
  explicit Png(const std::string& path) : path_(path) { image_.version = PNG_IMAGE_VERSION; }
  void open(const std::string& content) {
    check(png_image_begin_read_from_memory(&image_, content.data(), content.size()));
    RT_CHECK_AS(FormatError, content.compare(12, 4, "IHDR") == 0, path_,
                ": damaged PNG data (it does not begin with IHDR)");
    const int64_t depth = content[24], type = content[25], samples = type == 2 ? 3 : type == 4 ? 2 : type == 6 ? 4 : 1;
    check_size(path_, size(), size().width * size().height * samples * depth / 8, kDeflateRatio, content);
  }
  ~Png() { png_image_free(&image_); }
  Png(const Png&) = delete;
  Png& operator=(const Png&) = delete;

  ImageSize size() const { return {int64_t(image_.height), int64_t(image_.width)}; }

  Image decode(int64_t) {
    image_.format = PNG_FORMAT_RGBA;
    image_.flags |= PNG_IMAGE_FLAG_16BIT_sRGB;
    std::vector<uint8_t> rgba(PNG_IMAGE_SIZE(image_));
    check(png_image_finish_read(&image_, nullptr, rgba.data(), 0, nullptr));
    const size_t pixels = rgba.size() / 4;
    for (size_t i = 1; i < pixels; ++i)
      for (size_t c = 0; c < 3; ++c) rgba[3 * i + c] = rgba[4 * i + c];
    rgba.resize(3 * pixels);
    return {size(), std::move(rgba)};
  }

 private:
  void check(int success) const {
    RT_CHECK_AS(FormatError, success && !PNG_IMAGE_FAILED(image_), path_, ": damaged PNG data (", image_.message, ")");
  }
  const std::string& path_;
  png_image image_{};
};

// Calls f(reader) with the reader for this content.
template <class F>
auto with_reader(const std::string& path, const std::string& content, F&& f) {
  const auto with = [&](auto&& reader) {
    reader.open(content);
    return f(reader);
  };
  if (content.starts_with("\xff\xd8")) return with(Jpeg(path));
  RT_CHECK_AS(FormatError, content.starts_with("\x89PNG"), path, ": neither JPEG nor PNG data");
  return with(Png(path));
}

}  // namespace

ImageSize image_size_of(const std::string& content, const std::string& path) {
  return with_reader(path, content, [](auto& reader) { return reader.size(); });
}

ImageSize read_image_size(const std::string& path) { return image_size_of(read_file(path), path); }

Image decode_image(const std::string& content, const std::string& path, int64_t least) {
  return with_reader(path, content, [least](auto& reader) { return reader.decode(least); });
}

Image read_image(const std::string& path, int64_t least) { return decode_image(read_file(path), path, least); }

bool is_image_path(const std::string& path) {
  std::string end = std::filesystem::path(path).extension().string();
  std::transform(end.begin(), end.end(), end.begin(), [](unsigned char c) { return char(std::tolower(c)); });
  return end == ".jpg" || end == ".jpeg" || end == ".png";
}

}  // namespace ringtape
