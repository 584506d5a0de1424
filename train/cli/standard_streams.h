#pragma once
#include <string>

namespace ringtape::cli {

// Standard input, output and error that the caller has closed lead to /dev/null from now on: otherwise the next file
// that is opened gets their number, and with it what is printed.
void open_standard_streams();

// Writes a line to standard output at once. Never waits for its reader: lines that are not read yet are kept up to a
// limit, and what a training does meanwhile, its checkpoints and signals, goes on. Only one thread may call it.
void print_line(const std::string& text);
// Waits until these lines are read; no longer than a second in which none is, if a signal has asked the process to end
// or it `failed`. A warning says how many are lost.
void await_reader(bool failed = false);

// Waits for the reader and flushes standard output. Returns why something that was printed is lost; empty if nothing
// is, or if its reader has gone, as in `ringtape list | head -1`.
std::string lost_output();

}  // namespace ringtape::cli
