#pragma once
#include <functional>
#include <string>
#include <vector>

namespace ringtape {

// Runs this executable with these arguments and waits for it. Its output goes to the file `log`; `show` gets its
// standard output line by line, too. Signals that ask this process to stop are forwarded to it; if this process is
// killed, it is killed too. Returns its exit code, or 128 + its signal. Throws IoError.
int run_child(const std::vector<std::string>& arguments, const std::string& log,
              const std::function<void(const std::string&)>& show);

}  // namespace ringtape
