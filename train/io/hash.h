#pragma once
#include <string>

namespace ringtape {

std::string md5_of(const std::string& path);  // 32 hexadecimal digits, by OpenSSL; throws IoError

}  // namespace ringtape
