#pragma once
#include <string>
#include <vector>

namespace ringtape {

struct Finished {
  int code;           // exit status; 128 + signal if a signal ended it
  std::string error;  // its standard error, without the last line end; empty with `show`
};

// Runs a program found on PATH, without a shell, and waits for it. `show`: passes its standard error on to this
// process's. Throws IoError if it cannot be started.
Finished run_program(const std::vector<std::string>& command, bool show = false);

}  // namespace ringtape
