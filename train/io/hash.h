#pragma once
#include <string>

namespace ringtape {

std::string sha256_of(const std::string& path);           // 64 hexadecimal digits, by OpenSSL; throws IoError
std::string sha256_of_unpacked(const std::string& path);  // of what a gzip file holds; throws FormatError if it is damaged

}  // namespace ringtape
