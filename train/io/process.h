#pragma once
#include <atomic>
#include <string>
#include <vector>

namespace ringtape {

struct Finished {
  int code;             // exit status; 128 + signal if a signal ended it
  std::string error;    // the end of what it wrote to standard error, without the last line end; empty with `show`
  bool in_time = true;  // false: killed at the time limit, or because it was cancelled
};

struct ProgramOptions {
  bool show = false;                             // passes its standard error on to this process's
  bool quiet = false;                            // its standard output goes to `error`, too
  double time_limit = 0;                         // seconds, after which its process group is killed; 0: none
  const std::atomic<bool>* cancelled = nullptr;  // once true, it is killed likewise
  std::vector<std::string> environment = {};     // "NAME=value", besides this process's
};

// Runs a program found on PATH, without a shell, and waits for it; with a time limit, in a process group of its own.
// Throws IoError if it cannot be started.
Finished run_program(const std::vector<std::string>& command, const ProgramOptions& options = {});

// The words of a command line as a shell would split them: at blanks outside '...' and "...", with \ before a
// character that stands for itself. Nothing is expanded. Throws UsageError, beginning with `where`, for an open quote.
std::vector<std::string> split_words(const std::string& line, const std::string& where);

// Whether a program can be started: a path to an executable file, of machine code or beginning with #!, or its name on
// PATH.
bool is_program(const std::string& name);

}  // namespace ringtape
