#pragma once
#include <string>

namespace ringtape::cli {

// Standard input, output and error that the caller has closed lead to /dev/null from now on: otherwise the next file
// that is opened gets their number, and with it what is printed.
void open_standard_streams();

// Flushes standard output. Returns why something that was printed is lost; empty if nothing is, or if its reader has
// gone, as in `ringtape list | head -1`.
std::string lost_output();

}  // namespace ringtape::cli
