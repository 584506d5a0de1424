#pragma once
#include <string>
#include <string_view>

namespace ringtape {

// `begin`: the first 8 bytes of a file. Throws FormatError if they belong to another common format of weights; the
// message has its name and, if possible, the line of Python that converts the file to safetensors.
void check_foreign(const std::string& path, std::string_view begin);

}  // namespace ringtape
