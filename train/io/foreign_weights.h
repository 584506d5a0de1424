#pragma once
#include <string>
#include <string_view>

namespace ringtape {

// Throws FormatError for the beginning of a file (8 bytes) that is of another common format of weights: its name, and
// the line of Python that makes a safetensors file of it where there is one.
void check_foreign(const std::string& path, std::string_view begin);

}  // namespace ringtape
