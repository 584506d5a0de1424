#pragma once
#include <sys/types.h>

#include <string>
#include <vector>

#include "comm/launch/signals.h"

namespace ringtape::comm {

struct ChildSpec {
  std::vector<std::string> command;      // the first is found on PATH; empty: this process's own executable
  std::vector<std::string> environment;  // NAME=value, all of it
  std::vector<int> cores;                // cores to run on; empty: any
  bool input = false;                    // gets this process's standard input, else an empty one
  int inherited = -1;                    // a descriptor that it keeps, besides the standard ones
  int announced = -1;  // its id (pid_t) is written here before it begins, so that no process it starts is missed
};

struct Child {
  pid_t pid;
  Fd out, err;  // to read its output, non-blocking
};

// Starts a program as the leader of its own process group, to which signals do what they did before `signals`. It dies
// when this process does. Throws UsageError if it cannot be started.
Child start_child(const ChildSpec& spec, const Signals& signals);

}  // namespace ringtape::comm
