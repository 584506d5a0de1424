#pragma once
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "comm/base/deadline.h"

namespace ringtape::comm {

// Ranks to start on this machine, as part of a job of nodes * local_size.
struct Launch {
  std::vector<std::string> command;     // program and arguments; an empty program is this executable
  std::vector<std::string> on_restart;  // arguments that a restart adds
  int local_size = 1;
  int nodes = 1, node = 0;              // machines that start as many ranks each, and which of them this is
  std::string master_addr = "127.0.0.1";
  int master_port = 0;                  // where node 0 listens; 0: any free port, which only one node can
  std::string token;                    // proves to each other that they belong to the job; see store/token.h
  std::string log_dir;                  // gets attempt_0/rank_2.log and so on; empty: no logs
  std::optional<std::set<int>> shown;   // ranks whose output is shown; nothing: all
  bool prefix = true;                   // "[2] " before the lines of rank 2
  int max_restarts = 0;
  Seconds grace{10};                    // from SIGTERM to SIGKILL
  Seconds timeout{0};                   // of all attempts together; 0: none
  bool pin = true;                      // each rank to its own cores
};

inline constexpr int kPreempted =
    75;  // exit code of ranks that were stopped and can go on, from a checkpoint or the beginning: no reason to restart
inline constexpr int kTimedOut = 124;   // as timeout(1) ends
inline constexpr int kWrongUsage = 2;   // exit code of a ringtape command that is wrong, which a restart would not mend

// Runs the ranks until all have ended, whether anybody reads their output or not (comm/launch/display.h), and says on
// standard error what went wrong. Returns 0, or what the first that failed ended with: its exit code or 128 + its
// signal; kTimedOut at the timeout. The others then get SIGTERM and, after `grace`, SIGKILL; that at once when this
// process is killed. SIGTERM, SIGINT, SIGQUIT and SIGHUP go on to the ranks' process groups, SIGUSR1 and SIGUSR2 to the
// ranks; a second SIGINT kills them. Takes the process over: its signals and its children. Throws UsageError if the
// program cannot be started, CommError if the port cannot be listened at, IoError.
int launch(const Launch& launch);

}  // namespace ringtape::comm
