#pragma once
#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

namespace ringtape {

// A value as text for messages. Own types have `std::string str() const`, or `name_of`, or an overload of `text`.
inline std::string text(std::string_view s) { return std::string(s); }
inline std::string text(char c) { return std::string(1, c); }
std::string with_commas(int64_t n);  // 55,000
std::string shortest(double x);      // the shortest form that reads back as the same number
template <std::floating_point T> std::string text(T x) { return shortest(double(x)); }
template <std::integral T> std::string text(T x) {
  if constexpr (std::same_as<T, bool>) return x ? "true" : "false";
  else return std::to_string(x);
}
template <class T>
requires requires(const T& x) {
  { x.str() } -> std::convertible_to<std::string>;
}
std::string text(const T& x) { return x.str(); }
template <class T>
requires requires(T x) {
  { name_of(x) } -> std::convertible_to<std::string_view>;
}
std::string text(T x) { return std::string(name_of(x)); }

// A part of a message: a reference to a value, and how it becomes text. So a call costs little code, and what makes the
// text is compiled once for each type, not for each list of types.
class TextPart {
 public:
  TextPart(const char* s) : value_(s), append_(append_chars) {}
  template <class T> TextPart(const T& x) : value_(&x), append_(append_value<T>) {}
  void append_to(std::string& out) const { append_(out, value_); }

 private:
  static void append_chars(std::string& out, const void* s);
  template <class T> static void append_value(std::string& out, const void* x) {
    out += text(*static_cast<const T*>(x));
  }

  const void* value_;
  void (*append_)(std::string& out, const void* value);
};
using TextParts = std::initializer_list<TextPart>;

std::string joined(TextParts parts);

// concat("got ", 3, " of ", shape) == "got 3 of (2, 3)".
template <class... Parts> [[gnu::always_inline]] inline std::string concat(const Parts&... parts) {
  return joined({parts...});
}

}  // namespace ringtape
