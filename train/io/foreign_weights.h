#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace ringtape {

inline constexpr uint64_t kForeignBytes = 262;

// `begin`: the first kForeignBytes of a file, or all of a smaller one. Throws FormatError if they belong to another
// common format of weights; the message has its name and, if possible, the line of Python that converts the file to
// safetensors.
void check_foreign(const std::string& path, std::string_view begin);

}  // namespace ringtape
