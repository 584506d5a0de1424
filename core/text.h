#pragma once
#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>

namespace ringtape {

// A value as text for messages. Own types have `std::string str() const`, or `name_of`, or an overload of `text`.
inline std::string text(std::string_view s) { return std::string(s); }
inline std::string text(char c) { return std::string(1, c); }
std::string with_commas(int64_t n);  // 55,000
std::string shortest(double x);  // the shortest form that reads back as the same number
template <std::floating_point T>
std::string text(T x) { return shortest(double(x)); }
template <std::integral T>
std::string text(T x) {
  if constexpr (std::same_as<T, bool>) return x ? "true" : "false";
  else return std::to_string(x);
}
template <class T>
  requires requires(const T& x) { { x.str() } -> std::convertible_to<std::string>; }
std::string text(const T& x) { return x.str(); }
template <class T>
  requires requires(T x) { { name_of(x) } -> std::convertible_to<std::string_view>; }
std::string text(T x) { return std::string(name_of(x)); }

// concat("got ", 3, " of ", shape) == "got 3 of (2, 3)".
template <class... Parts>
std::string concat(const Parts&... parts) {
  std::string out;
  ((out += text(parts)), ...);
  return out;
}

}  // namespace ringtape
