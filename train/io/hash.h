#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace ringtape {

// CRC-32 as in gzip: it finds damage, not forgery.
class Crc32 {
 public:
  Crc32& add(const void* data, size_t bytes);
  Crc32& add(std::string_view text) { return add(text.data(), text.size()); }
  uint32_t value() const { return value_; }
  std::string str() const;  // 8 hexadecimal digits

 private:
  uint32_t value_ = 0;
};

std::string sha256_of(const std::string& path);  // 64 hexadecimal digits, by OpenSSL; throws IoError
// Of the content of a gzip file; throws FormatError if it is damaged.
std::string sha256_of_unpacked(const std::string& path);

}  // namespace ringtape
