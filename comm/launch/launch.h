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
  std::vector<std::string> on_restart;  // arguments added on a restart
  int local_size = 1;
  int nodes = 1, node = 0;              // number of machines, each with local_size ranks; number of this one
  std::string master_addr = "127.0.0.1";
  int master_port = 0;                  // where node 0 listens; 0: any free port, only with one node
  std::string token;                    // secret by which the processes recognise each other; see store/token.h
  std::string log_dir;                  // folder of attempt_0/rank_2.log and so on; empty: no logs
  std::optional<std::set<int>> shown;   // ranks whose output is shown; nullopt: all
  bool prefix = true;                   // "[2] " before the lines of rank 2
  int max_restarts = 0;
  Seconds grace{10};                    // from SIGTERM to SIGKILL
  Seconds timeout{0};                   // of all attempts together; 0: none
  bool pin = true;                      // each rank to its own cores
};

inline constexpr int kPreempted =
    75;  // exit code of ranks that were stopped and can be resumed, from a checkpoint or the beginning: no restart
inline constexpr int kTimedOut = 124;   // as timeout(1)
inline constexpr int kLostOutput = 1;   // all ranks did well, but a log or standard output could not be written
inline constexpr int kWrongUsage = 2;   // exit code of a wrong ringtape command; a restart would not help

// Runs the ranks until all have ended, whether or not anybody reads their output (comm/launch/display.h), and reports
// on standard error what went wrong. Returns 0, or the exit code (or 128 + signal) of the first rank that failed;
// kTimedOut at the timeout. The other ranks then get SIGTERM and, after `grace`, SIGKILL. If this process is killed,
// they get SIGKILL at once. SIGTERM, SIGINT, SIGQUIT and SIGHUP are forwarded to the ranks' process groups, SIGUSR1 and
// SIGUSR2 to the ranks; a second SIGINT kills them. Uses the whole process: its signals and its children. Throws
// UsageError if the program cannot be started, CommError if it cannot listen at the port, IoError.
int launch(const Launch& launch);

}  // namespace ringtape::comm
