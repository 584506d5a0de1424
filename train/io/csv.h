#pragma once
#include <string>

namespace ringtape {

// A cell of comma-separated values as RFC 4180 writes it: quoted if need be. What a terminal could take as a command is
// replaced.
std::string csv_cell(const std::string& text);

}  // namespace ringtape
