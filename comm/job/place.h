#pragma once
#include <functional>
#include <optional>
#include <string>

namespace ringtape::comm {

// What a launcher tells a process about its job: torchrun and `ringtape launch`, Open MPI's mpirun, mpiexec with Hydra
// (MPICH, Intel MPI), or Slurm's srun, by their variables.
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

// Where several launchers have left variables, those of the first one in the order above count that has started more
// than one rank: a job of one needs no launcher, unless it has a store by which others may join (RINGTAPE_STORE).
// WORLD_SIZE without RANK, as batch scripts export it, confirms what another launcher says.
//
// nullopt: this process is alone. Throws UsageError naming a variable that is missing or invalid, or WORLD_SIZE if
// somebody has set it by hand and the launcher says otherwise.
std::optional<Place> place_of(const Lookup& lookup);
std::optional<Place> place_of_process();  // from the environment

// How often the launcher has started the job of this process again: torchrun, or `ringtape launch`, of which restarts
// of single ranks of an `elastic` job do not count. nullopt: no launcher that restarts. Throws UsageError.
std::optional<int> restarts_of(const Lookup& lookup, bool elastic);
std::optional<int> restarts_of_process(bool elastic);

// The first of Slurm's "node[03-07,9],login" is node03.
std::string first_host(const std::string& list);

}  // namespace ringtape::comm
