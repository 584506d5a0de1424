#include "train/data/image/exif.h"

#include <algorithm>
#include <cstdint>

namespace ringtape {
namespace {

using namespace std::string_view_literals;

// The number in `bytes` bytes from `at` on, 0 behind the end.
uint64_t number(std::string_view x, size_t at, size_t bytes, bool little) {
  uint64_t out = 0;
  if (at > x.size() || bytes > x.size() - at) return 0;
  for (size_t i = 0; i < bytes; ++i) out = out << 8 | uint8_t(x[at + (little ? bytes - 1 - i : i)]);
  return out;
}

std::string_view from(std::string_view x, size_t at) { return x.substr(std::min(at, x.size())); }

// The TIFF header with what follows it; empty if there is none.
std::string_view exif_of(std::string_view content) {
  if (content.starts_with("\xff\xd8")) {
    for (size_t at = 2; number(content, at, 1, false) == 0xff;) {
      const uint64_t marker = number(content, at + 1, 1, false), length = number(content, at + 2, 2, false);
      if (marker == 0xff) {  // padding
        ++at;
        continue;
      }
      if (marker == 0xda || length < 2) break;
      const std::string_view data = from(content, at + 4).substr(0, length - 2);
      if (marker == 0xe1 && data.starts_with("Exif\0\0"sv)) return data.substr(6);
      at += 2 + length;
    }
  } else if (content.starts_with("\x89PNG")) {
    for (size_t at = 8; at + 12 <= content.size();) {
      const uint64_t length = number(content, at, 4, false);
      if (content.substr(at + 4, 4) == "eXIf") return from(content, at + 8).substr(0, length);
      at += 12 + length;
    }
  } else if (content.starts_with("RIFF")) {
    for (size_t at = 12; at + 8 <= content.size();) {
      const uint64_t length = number(content, at + 4, 4, true);
      std::string_view data = from(content, at + 8).substr(0, length);
      if (content.substr(at, 4) == "EXIF") return data.starts_with("Exif\0\0"sv) ? data.substr(6) : data;
      at += 8 + length + length % 2;
    }
  }
  return {};
}

}  // namespace

int exif_orientation(std::string_view content) {
  constexpr uint64_t kTag = 0x112, kShort = 3;
  const std::string_view exif = exif_of(content);
  const bool little = exif.starts_with("II*\0"sv);
  if (!little && !exif.starts_with("MM\0*"sv)) return 1;
  const uint64_t directory = number(exif, 4, 4, little), entries = number(exif, directory, 2, little);
  for (uint64_t i = 0; i < entries; ++i) {
    const uint64_t at = directory + 2 + 12 * i;
    if (number(exif, at, 2, little) != kTag) continue;
    const uint64_t value = number(exif, at + 8, 2, little);
    return number(exif, at + 2, 2, little) == kShort && value >= 1 && value <= 8 ? int(value) : 1;
  }
  return 1;
}

}  // namespace ringtape
