#pragma once
#include <functional>
#include <optional>
#include <string>

namespace ringtape::comm {

// What a launcher tells a process about its job: from the variables of torchrun and `ringtape launch`, of Open MPI, or
// of Slurm (srun).
struct Place {
  const char* launcher = "";
  int rank = 0, size = 1;
  int local_rank = 0, local_size = 1;  // on this host
  bool one_host = false;               // all ranks are on this host
  std::string job{};                   // distinguishes the jobs of a user on a host
  std::string host{};                  // of rank 0; empty: not known
  int port = 0;                        // where rank 0 may listen; 0: not known
};

// Reads a variable; nullopt: not set.
using Lookup = std::function<std::optional<std::string>(const char* name)>;

// nullopt: no launcher started this process. Throws UsageError naming a variable that is missing or invalid.
std::optional<Place> place_of(const Lookup& lookup);
std::optional<Place> place_of_process();  // from the environment

// The first of Slurm's "node[03-07,9],login" is node03.
std::string first_host(const std::string& list);

}  // namespace ringtape::comm
