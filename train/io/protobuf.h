#pragma once
#include <array>
#include <bit>
#include <cstdint>
#include <string>

// Fields of protobuf messages: a key (number * 8 + type), then the value. A message is the text of its fields, one
// after the other, and as a field of another one it is text.
namespace ringtape::protobuf {

template <class T> std::string bytes_of(T value) {
  return {std::bit_cast<std::array<char, sizeof(T)>>(value).data(), sizeof(T)};
}

inline std::string varint(uint64_t x) {
  std::string out;
  for (; x >= 0x80; x >>= 7) out += char(x | 0x80);
  return out + char(x);
}
inline std::string key(int number, int type) { return varint(uint64_t(number * 8 + type)); }
inline std::string field(int number, int64_t x) { return key(number, 0) + varint(uint64_t(x)); }
inline std::string field(int number, double x) { return key(number, 1) + bytes_of(x); }
inline std::string field(int number, float x) { return key(number, 5) + bytes_of(x); }
inline std::string field(int number, const std::string& x) { return key(number, 2) + varint(x.size()) + x; }

}  // namespace ringtape::protobuf
