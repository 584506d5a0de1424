#pragma once
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "comm/base/deadline.h"
#include "core/cgroup.h"

namespace ringtape::comm {

// Ranks to start on this machine, as part of a job.
struct Launch {
  std::vector<std::string> command;     // program and arguments; an empty program is this executable
  std::vector<std::string> on_restart;  // arguments added on a restart
  int local_size = 1;
  int nodes = 1, node = 0;  // number of machines; number of this one
  std::vector<int> sizes;   // ranks of each machine; empty: local_size
  std::string master_addr = "127.0.0.1";
  int master_port = 0;                 // where node 0 listens; 0: any free port, only with one node
  std::string token;                   // secret by which the processes recognise each other; see store/token.h
  std::string log_dir;                 // folder of attempt_0/rank_2.log and so on; empty: no logs
  std::optional<std::set<int>> shown;  // ranks whose output is shown; nullopt: all
  bool prefix = true;                  // "[2] " before the lines of rank 2
  int max_restarts = 0;                // of all ranks together; elastic: of single ranks, of all on this machine
  Seconds grace{10};                   // from SIGTERM to SIGKILL
  Seconds timeout{0};                  // of all attempts together; 0: none
  bool pin = true;                     // each rank to its own cores
  Cgroups groups{};                    // of this process and its ranks

  // Of an elastic job (comm/launch/elastic.h): a rank that ends is started again alone, while the others go on.
  bool elastic = false;
  bool joins = false;  // another process hosts the job's store at master_addr:master_port
  int base = 0;        // joins: RANK of the first rank here

  int ranks_before(int machine) const {
    return sizes.empty() ? machine * local_size : std::accumulate(sizes.begin(), sizes.begin() + machine, 0);
  }
  int first_rank() const { return joins ? base : ranks_before(node); }
  int ranks() const { return joins ? base + local_size : ranks_before(nodes); }  // WORLD_SIZE
};

inline constexpr int kPreempted =
    75;  // exit code of ranks that were stopped and can be resumed, from a checkpoint or the beginning: no restart
inline constexpr int kElasticRestarts = 10;  // of an elastic job, unless given
inline constexpr int kTimedOut = 124;        // as timeout(1)
inline constexpr int kLostOutput = 1;        // all ranks did well, but a log or standard output could not be written
inline constexpr int kWrongUsage = 2;        // exit code of a wrong ringtape command; a restart would not help

// Runs the ranks until all have ended, whether or not anybody reads their output (comm/launch/display.h), and reports
// on standard error what went wrong. Returns 0, or the exit code (or 128 + signal) of the first rank that failed;
// kTimedOut at the timeout. The other ranks then get SIGTERM and, after `grace`, SIGKILL. If this process is killed,
// they get SIGKILL at once. SIGTERM, SIGINT, SIGQUIT and SIGHUP are forwarded to the ranks' process groups, SIGUSR1 and
// SIGUSR2 to the ranks; a second SIGINT kills them. Uses the whole process: its signals and its children. Throws
// UsageError if the program cannot be started, CommError if it cannot listen at the port, IoError.
//
// Elastic: the others go on, and a line on standard error says of each end whether the rank is started again. It is not
// after exit code 0, kPreempted, or kWrongUsage of a ringtape command; when the job is done or has failed for all; and
// when this process was told to end. After wrong usage and a failure of the job the others get SIGTERM as above.
// Returns 0 if a rank ended with 0; else kPreempted if all ended with that, or one did after a signal told this process
// to end; else the code of the first rank that failed for good.
int launch(const Launch& launch);

}  // namespace ringtape::comm
