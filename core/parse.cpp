#include "core/parse.h"

#include <algorithm>
#include <limits>

namespace ringtape {

std::optional<size_t> parse_bytes(std::string_view text) {
  const size_t unit = std::min(text.find_first_of("KMG"), text.size());
  const int shift = unit == text.size() ? 0 : text[unit] == 'K' ? 10 : text[unit] == 'M' ? 20 : 30;
  const auto number = parse_number<size_t>(text.substr(0, unit), 0, std::numeric_limits<size_t>::max() >> shift);
  return number && unit + 1 >= text.size() ? std::optional(*number << shift) : std::nullopt;
}

std::vector<std::string> split_text(std::string_view text, char separator) {
  std::vector<std::string> out;
  for (size_t begin = 0, end; begin <= text.size(); begin = end + 1) {
    end = std::min(text.find(separator, begin), text.size());
    out.emplace_back(text.substr(begin, end - begin));
  }
  return out;
}

}  // namespace ringtape
