#include "train/data/image/exif.h"

#include <zlib.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>

namespace ringtape {
namespace {

using namespace std::string_view_literals;

constexpr std::string_view kExif = "Exif\0\0"sv, kXmp = "http://ns.adobe.com/xap/1.0/\0"sv;
constexpr size_t kLongestText = 1 << 20;  // bytes of a compressed text, as Pillow has it

// The number in `bytes` bytes from `at` on, 0 behind the end.
uint64_t number(std::string_view x, size_t at, size_t bytes, bool little) {
  uint64_t out = 0;
  if (at > x.size() || bytes > x.size() - at) return 0;
  for (size_t i = 0; i < bytes; ++i) out = out << 8 | uint8_t(x[at + (little ? bytes - 1 - i : i)]);
  return out;
}

std::string_view from(std::string_view x, size_t at) { return x.substr(std::min(at, x.size())); }
std::string_view behind(std::string_view x, char end) { return from(x, std::min(x.find(end), x.size()) + 1); }

// What a file says about its picture: a TIFF header with what follows it, and Adobe's text.
struct Metadata {
  std::optional<std::string> exif;
  std::string xmp;
};

Metadata in_jpeg(std::string_view content) {
  Metadata out;
  for (size_t at = 2; number(content, at, 1, false) == 0xff;) {
    const uint64_t marker = number(content, at + 1, 1, false), length = number(content, at + 2, 2, false);
    if (marker == 0xff) {  // padding
      ++at;
      continue;
    }
    if (marker == 0xda || length < 2) break;
    const std::string_view data = from(content, at + 4).substr(0, length - 2);
    if (marker == 0xe1 && data.starts_with(kExif) && !out.exif) out.exif = data;
    if (marker == 0xe1 && data.starts_with(kXmp)) out.xmp = data.substr(kXmp.size());
    at += 2 + length;
  }
  return out;
}

std::string inflated(std::string_view packed) {
  std::string out(kLongestText, '\0');
  uLongf size = out.size();
  const bool whole = uncompress(reinterpret_cast<Bytef*>(out.data()), &size,
                                reinterpret_cast<const Bytef*>(packed.data()), packed.size()) == Z_OK;
  out.resize(whole ? size : 0);
  return out;
}

// The bytes of ImageMagick's text "\nexif\n   LENGTH\nHEX...": hexadecimal digits in lines.
std::string raw_profile(std::string_view text) {
  for (int line = 0; line < 3; ++line) text = behind(text, '\n');
  std::string out;
  int digits = 0, byte = 0;
  for (const char c : text) {
    const int value = c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1;
    if (value < 0) continue;
    byte = byte << 4 | value;
    if (++digits % 2 == 0) out += char(byte), byte = 0;
  }
  return out;
}

// A chunk of text of one of the three kinds, "" if it has another keyword.
std::string text_of(std::string_view kind, std::string_view data, std::string_view keyword) {
  if (!data.starts_with(keyword) || number(data, keyword.size(), 1, false) != 0) return {};
  data = from(data, keyword.size() + 1);
  if (kind == "tEXt") return std::string(data);
  if (kind == "zTXt") return inflated(from(data, 1));
  if (kind != "iTXt") return {};
  const std::string_view text = behind(behind(from(data, 2), '\0'), '\0');  // after two flags, language and translation
  return number(data, 0, 1, false) ? inflated(text) : std::string(text);
}

Metadata in_png(std::string_view content) {
  Metadata out;
  std::string profile;
  for (size_t at = 8; at + 12 <= content.size();) {
    const uint64_t length = number(content, at, 4, false);
    const std::string_view kind = content.substr(at + 4, 4), data = from(content, at + 8).substr(0, length);
    if (kind == "eXIf") out.exif = data;
    if (std::string text = text_of(kind, data, "Raw profile type exif"); !text.empty()) profile = std::move(text);
    if (std::string text = text_of(kind, data, "XML:com.adobe.xmp"); !text.empty()) out.xmp = std::move(text);
    at += 12 + length;
  }
  if (!out.exif && !profile.empty()) out.exif = raw_profile(profile);
  return out;
}

Metadata in_webp(std::string_view content) {
  Metadata out;
  for (size_t at = 12; at + 8 <= content.size();) {
    const uint64_t length = number(content, at + 4, 4, true);
    const std::string_view kind = content.substr(at, 4), data = from(content, at + 8).substr(0, length);
    if (kind == "EXIF") out.exif = data;
    if (kind == "XMP ") out.xmp = data;
    at += 8 + length + length % 2;
  }
  return out;
}

Metadata in_file(std::string_view content) {
  if (content.starts_with("\xff\xd8")) return in_jpeg(content);
  if (content.starts_with("\x89PNG")) return in_png(content);
  if (content.starts_with("RIFF")) return in_webp(content);
  return {};
}

// What Exif says, if it says anything: 0 for what is no orientation.
std::optional<int> in_exif(std::string_view exif) {
  constexpr uint64_t kTag = 0x112, kShort = 3, kLong = 4;
  if (exif.starts_with(kExif)) exif = exif.substr(kExif.size());
  const bool little = exif.starts_with("II*\0"sv);
  if (!little && !exif.starts_with("MM\0*"sv)) return {};
  const uint64_t directory = number(exif, 4, 4, little), entries = number(exif, directory, 2, little);
  for (uint64_t i = 0; i < entries; ++i) {
    const uint64_t at = directory + 2 + 12 * i, type = number(exif, at + 2, 2, little);
    if (number(exif, at, 2, little) != kTag) continue;
    const bool one = number(exif, at + 4, 4, little) == 1 && (type == kShort || type == kLong);
    const uint64_t value = number(exif, at + 8, type == kShort ? 2 : 4, little);
    return one && value <= 8 ? int(value) : 0;
  }
  return {};
}

int in_xmp(std::string_view xmp) {
  constexpr std::string_view kName = "tiff:Orientation";
  for (size_t at = xmp.find(kName); at != xmp.npos; at = xmp.find(kName, at + 1)) {
    std::string_view value = xmp.substr(at + kName.size());
    value = from(value, value.starts_with("=\"") ? 2 : value.starts_with(">") ? 1 : value.size());
    if (!value.empty() && value[0] >= '0' && value[0] <= '9') return value[0] - '0';
  }
  return 1;
}

}  // namespace

int exif_orientation(std::string_view content) {
  const Metadata file = in_file(content);
  const std::optional<int> exif = file.exif ? in_exif(*file.exif) : std::nullopt;
  const int out = exif ? *exif : in_xmp(file.xmp);
  return out >= 1 && out <= 8 ? out : 1;
}

}  // namespace ringtape
