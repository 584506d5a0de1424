#include <png.h>

#include <csetjmp>
#include <cstdio>
#include <cstring>

#include "core/check.h"
#include "train/data/image/image_reader.h"
#include "train/io/sizes.h"

namespace ringtape {
namespace {

// By libpng's interface of rows: the simplified one converts colours by gAMA, as Pillow does not, and gives wrong rows
// for interlaced images of 16 bits (up to 1.6.58 at least).
class PngReader : public ImageReader {
 public:
  PngReader(std::string_view content, const std::string& path) : content_(content), path_(path) {}
  ~PngReader() override { end(); }
  PngReader(const PngReader&) = delete;
  PngReader& operator=(const PngReader&) = delete;

  void open() {
    begin();
    const auto row_bytes = int64_t(png_get_rowbytes(png_, info_));  // as in the file
    check_image_size(path_, size(), row_bytes * size().height, kDeflateRatio, content_);
  }

  ImageSize size() const override { return size_; }

  // Always the whole image.
  ImagePart read(const ImagePart&, int64_t, Image& to) override {
    if (begun_) begin();
    begun_ = true;
    int passes = 0;
    size_t row_bytes = 0;
    guarded([&] {
      png_set_palette_to_rgb(png_);
      png_set_expand_gray_1_2_4_to_8(png_);
      png_set_strip_16(png_);  // the upper byte
      png_set_strip_alpha(png_);
      png_set_gray_to_rgb(png_);
      passes = png_set_interlace_handling(png_);
      png_read_update_info(png_, info_);
      row_bytes = png_get_rowbytes(png_, info_);
    });
    const auto [height, width] = to.size = size_;
    RT_CHECK(row_bytes == size_t(3 * width), path_, ": ", row_bytes, " bytes per row of ", width, " pixels");
    to.rgb.resize(row_bytes * size_t(height));
    guarded([&, height = height] {
      for (int pass = 0; pass < passes; ++pass)
        for (int64_t row = 0; row < height; ++row) png_read_row(png_, to.rgb.data() + size_t(row) * row_bytes, nullptr);
    });
    return {0, 0, height, width};
  }

 private:
  void begin() {
    end();
    at_ = 0;
    png_ = png_create_read_struct(PNG_LIBPNG_VER_STRING, this, on_error, [](png_structp, png_const_charp) {});
    info_ = png_ ? png_create_info_struct(png_) : nullptr;
    RT_CHECK(info_, path_, ": libpng cannot be used; it is not the one of its header, or memory is short");
    guarded([&] {
      png_set_benign_errors(png_, 1);
      png_set_keep_unknown_chunks(png_, PNG_HANDLE_CHUNK_NEVER, nullptr, -1);  // only what pixels need is looked at
      png_set_read_fn(png_, this, read_bytes);
      png_read_info(png_, info_);
    });
    size_ = {int64_t(png_get_image_height(png_, info_)), int64_t(png_get_image_width(png_, info_))};
  }
  void end() { png_destroy_read_struct(&png_, &info_, nullptr); }

  [[noreturn]] static void on_error(png_structp png, png_const_charp message) {
    auto* const reader = static_cast<PngReader*>(png_get_error_ptr(png));
    std::snprintf(reader->message_, sizeof reader->message_, "%s", message);
    std::longjmp(reader->escape_, 1);
  }
  static void read_bytes(png_structp png, png_bytep to, size_t bytes) {
    auto* const reader = static_cast<PngReader*>(png_get_io_ptr(png));
    if (bytes > reader->content_.size() - reader->at_) png_error(png, "read beyond end of data");
    std::memcpy(to, reader->content_.data() + reader->at_, bytes);
    reader->at_ += bytes;
  }

  // Runs f. libpng may leave f by longjmp, so f must not create objects with destructors.
  template <class F> void guarded(F&& f) {
    if (setjmp(escape_)) detail::fail<FormatError>({path_, ": damaged PNG data (", message_, ")"});
    f();
  }

  const std::string_view content_;
  const std::string path_;
  size_t at_ = 0;
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
  std::jmp_buf escape_;
  char message_[200];
  ImageSize size_;
  bool begun_ = false;
};

}  // namespace

std::unique_ptr<ImageReader> open_png(std::string_view content, const std::string& path) {
  if (!content.starts_with("\x89PNG")) return nullptr;
  auto reader = std::make_unique<PngReader>(content, path);
  reader->open();
  return reader;
}

}  // namespace ringtape
