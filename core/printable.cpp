#include "core/printable.h"

namespace ringtape {
namespace {

std::string hex(const char* head, unsigned value, int digits) {
  std::string out = head;
  while (digits-- > 0) out += "0123456789abcdef"[value >> (4 * digits) & 15];
  return out;
}

// The code point at `at`, and its length in bytes; an invalid byte stands for itself.
struct Symbol {
  unsigned code;
  size_t length;
};
Symbol symbol_at(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
  const unsigned first = byte(at);
  const size_t length = first >= 0xf0 && first < 0xf5   ? 4
                        : first >= 0xe0 && first < 0xf0 ? 3
                        : first >= 0xc2 && first < 0xe0 ? 2
                                                        : 1;
  unsigned code = length == 1 ? first : first & (0x7fu >> length);
  for (size_t i = 1; i < length; ++i) {
    if (byte(at + i) >> 6 != 2) return {first, 1};
    code = code << 6 | (byte(at + i) & 0x3f);
  }
  return {code, length};
}

bool steers(unsigned code) {
  return code < 0x20 || (code >= 0x7f && code < 0xa0) || code == 0x200e || code == 0x200f ||
         (code >= 0x202a && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069);
}

}  // namespace

std::string printable(std::string_view text, std::string_view line_end) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const auto [code, length] = symbol_at(text, at);
    if (code == '\n') out += line_end;
    else if (!steers(code)) out += text.substr(at, length);
    else out += length == 1 ? hex("\\x", code, 2) : hex("\\u", code, 4);
    at += length;
  }
  return out;
}

std::string printable_name(std::string_view name) {
  constexpr size_t kMax = 100;
  return printable(name.substr(0, kMax)) + (name.size() > kMax ? "..." : "");
}

}  // namespace ringtape
