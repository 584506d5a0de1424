#pragma once
#include <functional>
#include <string>
#include <vector>

namespace ringtape {

// Runs this executable with these arguments, and waits. All it writes goes to `log`, and its standard output line by
// line to `show`, too. Signals that ask this process to stop go on to it; it is killed if this process is. Its exit
// code, or 128 + its signal. Throws IoError.
int run_child(const std::vector<std::string>& arguments, const std::string& log,
              const std::function<void(const std::string&)>& show);

}  // namespace ringtape
