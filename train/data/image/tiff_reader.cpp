#include <tiffio.h>

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <vector>

#include "core/check.h"
#include "train/data/image/image_reader.h"
#include "train/io/sizes.h"

namespace ringtape {
namespace {

// The content of a file, as libtiff reads it; and what libtiff says about it.
struct TiffMemory {
  std::string_view content;
  uint64_t at = 0;
  char message[200] = "";  // of the first error or warning that means missing data: no strange tag does
  bool pixels = false;
};

TiffMemory& memory_of(thandle_t handle) { return *static_cast<TiffMemory*>(handle); }

tmsize_t tiff_read(thandle_t handle, void* to, tmsize_t bytes) {
  TiffMemory& m = memory_of(handle);
  const uint64_t left = m.content.size() - std::min<uint64_t>(m.at, m.content.size());
  const auto count = std::min(uint64_t(std::max<tmsize_t>(bytes, 0)), left);
  if (count > 0) std::memcpy(to, m.content.data() + m.at, count);
  m.at += count;
  return tmsize_t(count);
}
tmsize_t tiff_write(thandle_t, void*, tmsize_t) { return 0; }
toff_t tiff_seek(thandle_t handle, toff_t offset, int from) {
  TiffMemory& m = memory_of(handle);
  return m.at = offset + (from == SEEK_SET ? 0 : from == SEEK_CUR ? m.at : m.content.size());
}
int tiff_close(thandle_t) { return 0; }
toff_t tiff_size(thandle_t handle) { return memory_of(handle).content.size(); }
int tiff_map(thandle_t handle, void** base, toff_t* size) {
  *base = const_cast<char*>(memory_of(handle).content.data());
  *size = memory_of(handle).content.size();
  return 1;
}
void tiff_unmap(thandle_t, void*, toff_t) {}

void keep_message(TiffMemory& m, const char* format, va_list values) {
  if (m.message[0] == '\0') std::vsnprintf(m.message, sizeof m.message, format, values);
}

#if TIFFLIB_VERSION >= 20221213  // 4.5: what it says goes to this file's handlers
int on_tiff_error(TIFF*, void* to, const char*, const char* format, va_list values) {
  return keep_message(memory_of(to), format, values), 1;
}
int on_tiff_warning(TIFF*, void* to, const char*, const char* format, va_list values) {
  if (memory_of(to).pixels || std::strstr(format, "IO error")) keep_message(memory_of(to), format, values);
  return 1;
}
TIFF* open_memory(TiffMemory& m) {
  TIFFOpenOptions* const options = TIFFOpenOptionsAlloc();
  TIFFOpenOptionsSetErrorHandlerExtR(options, on_tiff_error, &m);
  TIFFOpenOptionsSetWarningHandlerExtR(options, on_tiff_warning, &m);
  TIFF* const out = TIFFClientOpenExt("", "r", &m, tiff_read, tiff_write, tiff_seek, tiff_close, tiff_size, tiff_map,
                                      tiff_unmap, options);
  TIFFOpenOptionsFree(options);
  return out;
}
#else  // there is only one handler for the whole process, so nothing is said
TIFF* open_memory(TiffMemory& m) {
  static const bool silent = (TIFFSetErrorHandler(nullptr), TIFFSetWarningHandler(nullptr), true);
  (void)silent, (void)keep_message;
  return TIFFClientOpen("", "r", &m, tiff_read, tiff_write, tiff_seek, tiff_close, tiff_size, tiff_map, tiff_unmap);
}
#endif

// How many bytes one byte of the file may stand for; 0: any number.
int64_t most_expansion(int compression) {
  switch (compression) {
    case COMPRESSION_NONE: return 1;
    case COMPRESSION_PACKBITS: return 64;
    case COMPRESSION_LZW: return 4096;
    case COMPRESSION_JPEG: return 512;  // 64 samples from a bit
    case COMPRESSION_ADOBE_DEFLATE:
    case COMPRESSION_DEFLATE: return kDeflateRatio;
    default: return 0;
  }
}

// The first image of a TIFF file.
class TiffReader : public ImageReader {
 public:
  TiffReader(std::string_view content, const std::string& path) : path_(path) {
    memory_.content = content;
    tiff_ = open_memory(memory_);
  }
  ~TiffReader() override {
    if (tiff_) TIFFClose(tiff_);
  }
  TiffReader(const TiffReader&) = delete;
  TiffReader& operator=(const TiffReader&) = delete;

  void open() {
    if (!tiff_ || memory_.message[0] != '\0') damaged();
    uint32_t width = 0, height = 0;
    if (!TIFFGetField(tiff_, TIFFTAG_IMAGEWIDTH, &width) || !TIFFGetField(tiff_, TIFFTAG_IMAGELENGTH, &height) ||
        width == 0 || height == 0)
      damaged();
    size_ = {int64_t(height), int64_t(width)};
    const int compression = field(TIFFTAG_COMPRESSION), bits = field(TIFFTAG_BITSPERSAMPLE),
              samples = field(TIFFTAG_SAMPLESPERPIXEL), kind = field(TIFFTAG_SAMPLEFORMAT);
    constexpr int kRead[] = {COMPRESSION_NONE,          COMPRESSION_PACKBITS,  COMPRESSION_LZW,
                             COMPRESSION_ADOBE_DEFLATE, COMPRESSION_DEFLATE,   COMPRESSION_JPEG,
                             COMPRESSION_CCITTRLE,      COMPRESSION_CCITTFAX3, COMPRESSION_CCITTFAX4};
    RT_CHECK_AS(FormatError, std::find(std::begin(kRead), std::end(kRead), compression) != std::end(kRead), path_,
                ": TIFF data of compression ", compression,
                "; expected none, PackBits, LZW, Deflate, JPEG or a fax's (CCITT)");
    const int colours = field(TIFFTAG_PHOTOMETRIC);
    RT_CHECK_AS(
        FormatError, colours <= PHOTOMETRIC_PALETTE || colours == PHOTOMETRIC_SEPARATED || colours == PHOTOMETRIC_YCBCR,
        path_, ": TIFF data of photometric interpretation ", colours, "; expected grey, RGB, a palette, CMYK or YCbCr");
    uint16_t* map[3] = {};
    if (colours == PHOTOMETRIC_PALETTE && !TIFFGetField(tiff_, TIFFTAG_COLORMAP, &map[0], &map[1], &map[2])) damaged();
    const bool known = bits == 16 || (bits <= 8 && 8 % bits == 0);
    RT_CHECK_AS(FormatError, kind == SAMPLEFORMAT_UINT && known, path_, ": TIFF data of ", samples, " samples of ",
                bits, " bits, of format ", kind, "; expected whole numbers of 1, 2, 4, 8 or 16 bits");
    check_bands(samples, colours);
    check_image_size(path_, size_, 0, 1, memory_.content);
    const int64_t pixels = size_.height * size_.width, expansion = most_expansion(compression);
    if (expansion > 0) check_image_size(path_, size_, pixels * samples * bits / 8, expansion, memory_.content);
    else check_pixels_per_byte(path_, size_, memory_.content);
    if (TIFFIsTiled(tiff_)) check_tiles(pixels);
    prepare(samples);
  }

  // As Pillow, and so torchvision, gives it: turned as its orientation says, unlike those of other formats.
  ImageSize size() const override { return orientation_.seen(size_); }

  ImagePart read(const ImagePart& part, int64_t, Image& to) override {
    raster_.resize(size_t(size_.height * size_.width));
    memory_.pixels = true;
    const bool good = decode();
    memory_.pixels = false;
    if (!good || memory_.message[0] != '\0') damaged();
    if (multiplied_) divide_by_opacity();
    return cut_seen(reinterpret_cast<const uint8_t*>(raster_.data()), size_, 4, orientation_, part, to);
  }

 private:
  [[noreturn]] void damaged() const {
    detail::fail<FormatError>(
        {path_, ": damaged TIFF data (", memory_.message[0] != '\0' ? memory_.message : "it cannot be decoded", ")"});
  }
  int field(uint32_t tag) const {
    uint16_t value = 0;
    return TIFFGetFieldDefaulted(tiff_, tag, &value) ? value : 0;
  }
  // A tile may be larger than the image, and takes memory as it says.
  void check_tiles(int64_t pixels) const {
    uint32_t width = 0, height = 0;
    TIFFGetField(tiff_, TIFFTAG_TILEWIDTH, &width), TIFFGetField(tiff_, TIFFTAG_TILELENGTH, &height);
    constexpr int64_t kAnyway = int64_t{1} << 22;
    RT_CHECK_AS(FormatError, uint64_t(width) * height <= uint64_t(std::max(4 * pixels, kAnyway)), path_,
                ": damaged TIFF data (tiles of ", width, " x ", height, " pixels)");
  }
  // As many further bands as Pillow reads: none of them may be a colour.
  void check_bands(int bands, int photometric) const {
    const bool rgb = photometric == PHOTOMETRIC_RGB, inks = photometric == PHOTOMETRIC_SEPARATED,
               ycbcr = photometric == PHOTOMETRIC_YCBCR, palette = photometric == PHOTOMETRIC_PALETTE;
    const int least = inks ? 4 : rgb || ycbcr ? 3 : 1, most = rgb || inks ? 6 : ycbcr ? 3 : 2;
    RT_CHECK_AS(FormatError, bands >= least && bands <= most, path_, ": a TIFF image of ", bands, " bands; expected ",
                least, least < most ? concat(" to ", most) : "", " for ",
                inks      ? "CMYK"
                : rgb     ? "RGB"
                : ycbcr   ? "YCbCr"
                : palette ? "a palette"
                          : "grey",
                ", as it says it is; write the three bands that are to be seen as RGB");
  }

  bool decode() {
    char message[1024] = "";
    TIFFRGBAImage image;
    if (!TIFFRGBAImageOK(tiff_, message) || !TIFFRGBAImageBegin(&image, tiff_, 1, message)) {
      std::snprintf(memory_.message, sizeof memory_.message, "%s", message);
      return false;
    }
    image.req_orientation = ORIENTATION_TOPLEFT;
    if (image.Bitdepth16To8)  // the upper byte, where libtiff rounds
      for (int i = 0; i < 1 << 16; ++i) image.Bitdepth16To8[i] = uint8_t(i >> 8);
    const bool good = TIFFRGBAImageGet(&image, raster_.data(), image.width, image.height);
    TIFFRGBAImageEnd(&image);
    return good;
  }
  // Takes colours back that are stored multiplied by their opacity, rounded down as by Pillow.
  void divide_by_opacity() {
    for (uint32_t& pixel : raster_) {
      auto* const p = reinterpret_cast<uint8_t*>(&pixel);
      const int a = p[3];
      for (int c = 0; c < 3; ++c) p[c] = a == 0 ? uint8_t{0} : uint8_t(std::min(255, p[c] * 255 / a));
    }
  }

  // libtiff does not turn; colours are not multiplied by the fourth channel.
  void prepare(int samples) {
    if (const int told = field(TIFFTAG_ORIENTATION); told >= 1 && told <= 8) orientation_ = {told};
    TIFFSetField(tiff_, TIFFTAG_ORIENTATION, ORIENTATION_TOPLEFT);
    uint16_t count = 0, *kinds = nullptr;
    if (!TIFFGetField(tiff_, TIFFTAG_EXTRASAMPLES, &count, &kinds) || count == 0 || count >= samples) return;
    multiplied_ = kinds[0] == EXTRASAMPLE_ASSOCALPHA;
    std::vector<uint16_t> changed(kinds, kinds + count);
    for (uint16_t& kind : changed)
      if (kind == EXTRASAMPLE_UNASSALPHA) kind = EXTRASAMPLE_ASSOCALPHA;
    TIFFSetField(tiff_, TIFFTAG_EXTRASAMPLES, int(count), changed.data());
  }

  const std::string path_;
  TiffMemory memory_;
  TIFF* tiff_ = nullptr;
  ImageSize size_;  // in the file
  Orientation orientation_;
  bool multiplied_ = false;
  std::vector<uint32_t> raster_;
};

}  // namespace

std::unique_ptr<ImageReader> open_tiff(std::string_view content, const std::string& path) {
  using namespace std::string_view_literals;
  constexpr std::string_view kBegins[] = {"II*\0"sv, "MM\0*"sv, "II+\0"sv, "MM\0+"sv};  // + is BigTIFF
  if (!std::ranges::any_of(kBegins, [&](auto begin) { return content.starts_with(begin); })) return nullptr;
  auto reader = std::make_unique<TiffReader>(content, path);
  reader->open();
  return reader;
}

}  // namespace ringtape
