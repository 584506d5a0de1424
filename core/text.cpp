#include "core/text.h"

#include <charconv>
#include <cmath>

namespace ringtape {

std::string shortest(double x) {
  if (std::isnan(x)) return "nan";  // without its sign, which is meaningless
  char buffer[32];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, x).ptr;
  return std::string(buffer, end);
}

std::string with_commas(int64_t n) {
  std::string out = std::to_string(n);
  for (int64_t at = int64_t(out.size()) - 3; at > (n < 0); at -= 3) out.insert(size_t(at), 1, ',');
  return out;
}

void TextPart::append_chars(std::string& out, const void* s) { out += static_cast<const char*>(s); }

std::string joined(TextParts parts) {
  std::string out;
  for (const TextPart& part : parts) part.append_to(out);
  return out;
}

}  // namespace ringtape
