#pragma once
#include <string>

namespace ringtape {

std::string sha256_of(const std::string& path);           // 64 hexadecimal digits, by OpenSSL; throws IoError
// Of the content of a gzip file; throws FormatError if it is damaged.
std::string sha256_of_unpacked(const std::string& path);

}  // namespace ringtape
