#pragma once
#include <charconv>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace ringtape {

// The number that is all of a text; nothing for other text, and for a number that does not fit.
template <class T> std::optional<T> parse_number(std::string_view text) {
  T out{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  return error == std::errc{} && end == text.data() + text.size() ? std::optional(out) : std::nullopt;
}
template <class T> std::optional<T> parse_number(std::string_view text, T low, T high) {
  const std::optional<T> out = parse_number<T>(text);
  return out && *out >= low && *out <= high ? out : std::nullopt;
}

// A number of bytes, as 512, 16K, 64M or 1G.
std::optional<size_t> parse_bytes(std::string_view text);

// The words of a list: "a,,b" has three, an empty text one.
std::vector<std::string> split_text(std::string_view text, char separator = ',');

}  // namespace ringtape
