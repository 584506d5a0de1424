#include "train/http/request_size.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <optional>

namespace ringtape {
namespace {

bool is_alike(std::string_view a, std::string_view b) {
  const auto lower = [](char c) { return std::tolower(static_cast<unsigned char>(c)); };
  return std::ranges::equal(a, b, {}, lower, lower);
}

std::string_view trimmed(std::string_view text) {
  const size_t begin = std::min(text.find_first_not_of(" \t\r"), text.size());
  return text.substr(begin, text.find_last_not_of(" \t\r") + 1 - begin);
}

std::optional<size_t> number_of(std::string_view digits) {
  size_t out = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), out);
  if (error != std::errc{} || end != digits.data() + digits.size()) return {};
  return out;
}

}  // namespace

RequestSize request_size(std::string_view text) {
  constexpr std::string_view kEnd = "\r\n\r\n";
  const size_t end = text.find(kEnd);
  if (end == std::string_view::npos) return {};
  RequestSize out{.head = end + kEnd.size()};
  std::optional<size_t> body;
  for (size_t at = 0; at < end;) {
    const size_t next = std::min(text.find('\n', at), end);
    const std::string_view line = text.substr(at, next - at);
    const size_t colon = std::min(line.find(':'), line.size());
    const std::string_view name = line.substr(0, colon), value = trimmed(line.substr(std::min(colon + 1, line.size())));
    at = next + 1;
    if (is_alike(name, "transfer-encoding")) out.wrong = "411 Length Required";
    if (is_alike(name, "expect")) out.asks = is_alike(value, "100-continue");
    if (!is_alike(name, "content-length")) continue;
    const std::optional<size_t> length = number_of(value);
    if (!length || (body && *body != *length)) out.wrong = "400 Bad Request";
    body = length;
  }
  out.body = body.value_or(0);
  return out;
}

}  // namespace ringtape
