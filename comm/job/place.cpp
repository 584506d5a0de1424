#include "comm/job/place.h"

#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <fstream>

#include "core/check.h"
#include "core/parse.h"

namespace ringtape::comm {

namespace {

// The variables of one launcher.
class Variables {
 public:
  Variables(const Lookup& lookup, const char* launcher) : lookup_(lookup), launcher_(launcher) {}
  std::string text(const char* name, const std::string& fallback = "") const {
    return lookup_(name).value_or(fallback);
  }
  int number(const char* name, int low, int high, std::optional<int> fallback = std::nullopt) const {
    const auto value = lookup_(name);
    if (!value && fallback) return *fallback;
    RT_CHECK_AS(UsageError, value, name, " is not set, but other variables of ", launcher_,
                " are; set it, or none of them");
    const auto out = parse_number(*value, low, high);
    RT_CHECK_AS(UsageError, out, name, "=", *value, ": expected a whole number from ", low, " to ", high);
    return *out;
  }

 private:
  const Lookup& lookup_;
  const char* const launcher_;
};

constexpr int kMaxRanks = 1 << 20;  // ranks

bool is_loopback(const std::string& host) { return host == "localhost" || host == "::1" || host.starts_with("127."); }

// In a range without registered services and, by default, without outgoing connections.
int port_for(const std::string& job) { return 20000 + int(std::hash<std::string>()(job) % 10000); }

Place from_torchrun(const Lookup& lookup) {
  const Variables v(lookup, "torchrun and ringtape launch");
  Place p{.launcher = "torchrun"};
  p.size = v.number("WORLD_SIZE", 1, kMaxRanks);
  p.rank = v.number("RANK", 0, p.size - 1);
  p.host = v.text("MASTER_ADDR");
  const bool has_port = lookup("MASTER_PORT").has_value();
  p.port = has_port ? v.number("MASTER_PORT", 0, 65535) : 0;
  // The agent's own store already listens at this port. Use the next one, because all ranks can compute it.
  if (p.port > 0 && v.text("TORCHELASTIC_USE_AGENT_STORE") == "True") p.port = p.port == 65535 ? 65534 : p.port + 1;
  const bool local = is_loopback(p.host);
  p.local_size = v.number("LOCAL_WORLD_SIZE", 1, p.size, local ? p.size : 1);
  p.local_rank = v.number("LOCAL_RANK", 0, p.local_size - 1, local ? p.rank : 0);
  p.one_host = p.local_size == p.size || local;
  p.job = concat("torchrun ", p.port, ' ', v.text("TORCHELASTIC_RUN_ID"), ' ', v.text("TORCHELASTIC_RESTART_COUNT"));
  return p;
}

// The names of the variables of an MPI launcher.
struct MpiNames {
  const char *size, *rank, *local_size, *local_rank;
};
Place from_mpi(const Variables& v, const char* launcher, const MpiNames& names, const std::string& job) {
  Place p{.launcher = launcher};
  p.size = v.number(names.size, 1, kMaxRanks);
  p.rank = v.number(names.rank, 0, p.size - 1);
  p.local_size = v.number(names.local_size, 1, p.size);
  p.local_rank = v.number(names.local_rank, 0, p.local_size - 1);
  p.one_host = p.local_size == p.size;
  p.job = concat(launcher, ' ', job);
  p.host = v.text("MASTER_ADDR");
  return p;
}

Place from_open_mpi(const Lookup& lookup) {
  const Variables v(lookup, "Open MPI");
  Place p = from_mpi(
      v, "mpirun",
      {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"},
      v.text("PMIX_NAMESPACE", v.text("OMPI_MCA_ess_base_jobid", std::to_string(::getppid()))));
  p.port = v.number("MASTER_PORT", 1, 65535, port_for(p.job));
  return p;
}

// The ancestor that all ranks of this host have in common, whatever wraps them; else the parent.
pid_t hydra_proxy() {
  for (pid_t pid = ::getppid(); pid > 1;) {
    std::ifstream stat(concat("/proc/", pid, "/stat"));
    std::string number, name, state;
    if (!(stat >> number >> name >> state >> pid)) break;
    if (name == "(hydra_pmi_proxy)") return std::atoi(number.c_str());
  }
  return ::getppid();
}

Place from_hydra(const Lookup& lookup) {
  const Variables v(lookup, "mpiexec");
  Place p = from_mpi(v, "mpiexec", {"PMI_SIZE", "PMI_RANK", "MPI_LOCALNRANKS", "MPI_LOCALRANKID"},
                     std::to_string(hydra_proxy()));
  p.port = v.number("MASTER_PORT", 1, 65535, p.one_host ? port_for(p.job) : 29500);
  return p;
}

// "4(x2),3": the number of tasks of each node, in order.
int tasks_on_node(const std::string& list, int node) {
  for (size_t at = 0; at < list.size();) {
    const int tasks = std::atoi(list.c_str() + at);
    const size_t end = std::min(list.find(',', at), list.size()), times = list.find("(x", at);
    node -= times < end ? std::max(1, std::atoi(list.c_str() + times + 2)) : 1;
    if (node < 0) return std::max(tasks, 1);
    at = end + 1;
  }
  return 1;
}

Place from_slurm(const Lookup& lookup) {
  const Variables v(lookup, "Slurm");
  Place p{.launcher = "srun"};
  p.size = v.number("SLURM_STEP_NUM_TASKS", 1, kMaxRanks);
  p.rank = v.number("SLURM_PROCID", 0, p.size - 1);
  const int nodes = v.number("SLURM_STEP_NUM_NODES", 1, kMaxRanks, 1);
  p.one_host = nodes == 1;
  p.local_size =
      p.one_host ? p.size : tasks_on_node(v.text("SLURM_STEP_TASKS_PER_NODE"), v.number("SLURM_NODEID", 0, nodes - 1));
  p.local_rank = v.number("SLURM_LOCALID", 0, p.local_size - 1, 0);
  p.job = concat("srun ", v.text("SLURM_JOB_ID"), '.', v.text("SLURM_STEP_ID"));
  p.host = v.text("MASTER_ADDR", first_host(v.text("SLURM_STEP_NODELIST")));
  p.port = v.number("MASTER_PORT", 1, 65535, port_for(p.job));
  return p;
}

}  // namespace

std::string first_host(const std::string& list) {
  const size_t bracket = list.find('['), comma = list.find(',');
  if (bracket >= comma) return list.substr(0, comma);
  const size_t end = list.find_first_of("-,]", bracket), close = list.find(']', bracket);
  if (end == std::string::npos || close == std::string::npos) return list;
  return list.substr(0, bracket) + list.substr(bracket + 1, end - bracket - 1) +
         list.substr(close + 1, list.find(',', close) - close - 1);
}

// Slurm sets PMI_RANK and PMI_SIZE, too, for MPI libraries; if Hydra uses srun to start its proxies, PMI_SIZE counts.
static std::optional<Place> from_others(const Lookup& lookup) {
  const bool slurm = lookup("SLURM_STEP_NUM_TASKS").has_value();  // of srun; a batch script has only the job's
  if (lookup("OMPI_COMM_WORLD_SIZE")) return from_open_mpi(lookup);
  if (lookup("PMI_SIZE") && (!slurm || lookup("MPI_LOCALNRANKS"))) return from_hydra(lookup);
  if (slurm) return from_slurm(lookup);
  RT_CHECK_AS(UsageError, !lookup("PMIX_RANK") || lookup("RANK"), "PMIX_RANK is set, but no variable says how many ",
              "ranks there are: use mpirun instead of prterun, or set RANK and WORLD_SIZE");
  return std::nullopt;
}

std::optional<Place> place_of(const Lookup& lookup) {
  const auto counts = [&](const Place& p) { return p.size > 1 || lookup("RINGTAPE_STORE"); };
  const auto other = from_others(lookup);
  const bool launched = other && counts(*other);
  if (launched && lookup("WORLD_SIZE") && !lookup("LOCAL_WORLD_SIZE")) {  // torchrun in each of its tasks has both
    const int size = Variables(lookup, "a launcher").number("WORLD_SIZE", 1, kMaxRanks);
    RT_CHECK_AS(UsageError, size == 1 || size == other->size, "WORLD_SIZE=", size, ", but ", other->launcher,
                " has started ", other->size, " ranks; unset WORLD_SIZE and RANK, or start as many");
  }
  if (lookup("RANK") || (lookup("WORLD_SIZE") && !launched && lookup("WORLD_SIZE") != "1"))
    if (Place own = from_torchrun(lookup); counts(own)) return own;
  return launched ? other : std::nullopt;
}

std::optional<int> restarts_of(const Lookup& lookup, bool elastic) {
  const Variables v(lookup, "a launcher");
  std::optional<int> out;
  for (const char* name : {"TORCHELASTIC_RESTART_COUNT", "RINGTAPE_RESTART"})  // one may have started the other
    if (lookup(name) && !(elastic && name[0] == 'R')) out = std::max(out.value_or(0), v.number(name, 0, INT_MAX));
  return out;
}

static std::optional<std::string> environment(const char* name) {
  const char* const value = std::getenv(name);
  return value && *value ? std::optional<std::string>(value) : std::nullopt;
}

std::optional<Place> place_of_process() { return place_of(environment); }

std::optional<int> restarts_of_process(bool elastic) { return restarts_of(environment, elastic); }

}  // namespace ringtape::comm
