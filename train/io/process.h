#pragma once
#include <string>
#include <vector>

namespace ringtape {

struct Finished {
  int code;           // exit status; 128 + signal if a signal ended it
  std::string error;  // what it wrote to standard error, without the last line's end; empty where that was passed on
};

// Runs a program found on PATH, without a shell, and waits for it. `show`: what it says goes to this process's standard
// error. Throws IoError if it cannot be started.
Finished run_program(const std::vector<std::string>& command, bool show = false);

}  // namespace ringtape
