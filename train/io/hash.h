#pragma once
#include <string>

namespace ringtape {

std::string md5_of(const std::string& path);           // 32 hexadecimal digits, by OpenSSL; throws IoError
std::string md5_of_unpacked(const std::string& path);  // of what a gzip file holds; throws FormatError if it is damaged

}  // namespace ringtape
