#include "train/loop/world.h"

#include <unistd.h>

#include <algorithm>
#include <thread>

#include "comm/base/host_name.h"
#include "comm/launch/elastic.h"
#include "comm/launch/launch.h"
#include "comm/store/token.h"
#include "comm/transport/host.h"
#include "comm/transport/transports.h"
#include "core/cgroup.h"
#include "core/env.h"
#include "core/runtime.h"
#include "train/run/stop.h"

namespace ringtape {
namespace {

// If the launcher has not bound each rank to its own cores, the ranks of a machine divide the cores among themselves.
int64_t threads_of(const ExecutionOptions& options, int local_size) {
  const int cores = threads();
  const bool shared =
      options.threads == 0 && env::threads() == 0 && allowed_cpus() >= int(std::thread::hardware_concurrency());
  return local_size > 1 && shared ? std::max(1, cores / local_size) : options.threads;
}

void check_strategy(const ParallelOptions& options, const comm::Job& job, bool launched) {
  const bool grouped = job.size > 1;
  const StrategyEntry& strategy = options.entry();
  RT_CHECK_AS(UsageError, !grouped || strategy.ranks != StrategyEntry::Ranks::one, "--strategy ", strategy.name,
              ": uses one process, but a launcher has started ", job.size, " ranks; choose ",
              strategy.replicas ? "ddp, or ddp2 for dp in each of them" : "ddp");
  RT_CHECK_AS(UsageError, !launched || options.devices == 1 || strategy.replicas || options.devices == job.local_size,
              "--devices ", options.devices, ": a launcher has started ", job.local_size,
              " ranks here; leave the flag out");
  RT_CHECK_AS(UsageError, grouped || strategy.replicas || options.devices == 1, "--strategy ", strategy.name,
              ": uses one device, not --devices ", options.devices);
}

std::string device_of(const ParallelOptions& options, const std::string& device, const comm::Job& job, bool grouped) {
  if (!options.gpu_ids.empty()) {
    const std::vector<int> ids = options.gpus();
    const int at = options.entry().replicas ? 0 : job.local_rank;
    RT_CHECK_AS(UsageError, at < int(ids.size()), "--gpu-ids ", options.gpu_ids, ": no GPU for rank ", job.local_rank,
                " of this machine");
    RT_CHECK_AS(UsageError, grouped || options.entry().replicas || ids.size() == 1, "--gpu-ids ", options.gpu_ids,
                ": one rank uses only one GPU; add --devices ", ids.size());
    RT_CHECK_AS(UsageError, device == "auto" || device == "cuda", "--device ", device,
                " and --gpu-ids: give only one of them");
    return Device{DeviceType::cuda, ids[size_t(at)]}.str();
  }
  const bool cuda = device == "cuda" || (device == "auto" && available({DeviceType::cuda, 0}));
  return cuda && grouped ? Device{DeviceType::cuda, options.entry().replicas ? 0 : job.local_rank}.str() : device;
}

std::unique_ptr<comm::Transport> transport_of(const ParallelOptions& options, const std::string& device,
                                              const comm::Job& job) {
  check_ranks(options, job.size);
  const double timeout = options.elastic.step_timeout > 0 ? options.elastic.step_timeout : options.comm_timeout;
  return comm::make_transport(options.transport, job.context(comm::Seconds(timeout)),
                              device == "auto" ? Device{} : parse_device(device));
}

}  // namespace

void World::fail(const std::string& cause) noexcept {
  constexpr comm::Seconds kYieldToFirstFailure(0.2);
  if (!job.failure) return;
  try {
    job.failure->raise(concat("rank ", job.rank, " on ", job.host, ": ", cause));
    if (!job.failure->ours()) std::this_thread::sleep_for(kYieldToFirstFailure);
  } catch (const std::exception&) {  // the others then run into their time limit
  }
}

bool World::ended_by_another() const { return job.failure && job.failure->raised() && !job.failure->ours(); }

comm::Devices devices_of(const ParallelOptions& options, DeviceType type) {
  comm::Devices out;
  if (!options.entry().replicas) return out;
  const std::vector<int> ids = options.gpus();
  for (int i = 0; i < options.own_devices(); ++i) {
    out.push_back({type, ids.empty() ? i : ids[size_t(i)]});
    runtime(out.back());
  }
  return out;
}

World join_world(const ParallelOptions& options, ExecutionOptions& execution) {
  constexpr comm::Seconds kMeeting(300);
  World world;
  auto job = comm::job_from_environment(std::min(comm::Seconds(options.comm_timeout), kMeeting));
  if (job) world.job = std::move(*job);
  try {
    check_strategy(options, world.job, job.has_value());
    const bool grouped = world.size() > 1;
    execution.device = device_of(options, execution.device, world.job, grouped);
    execution.threads = threads_of(execution, world.job.local_size);
    if (grouped) world.own = std::make_unique<comm::ProcessGroup>(transport_of(options, execution.device, world.job));
  } catch (const std::exception& e) {
    world.fail(e.what());
    throw;
  }
  return world;
}

std::unique_ptr<comm::Membership> join_membership(std::shared_ptr<comm::Store> store, const comm::Place& place,
                                                  const ParallelOptions& options, int ranks, int64_t batch) {
  constexpr int64_t kMaxRanks = 1 << 20;
  const ElasticOptions& e = options.elastic;
  const double patience = e.step_timeout > 0 ? e.step_timeout : options.comm_timeout;
  const int64_t most = std::min(options.shares > 0 ? std::min(options.shares, batch) : batch, kMaxRanks);
  const comm::Membership::Options membership{.ranks = ranks,
                                             .place = place.rank,
                                             .min_ranks = int(e.min_ranks),
                                             .max_ranks = int(most),
                                             .told_to_stop = stop_requested,
                                             .wait_for_ranks = comm::Seconds(e.wait_for_ranks),
                                             .patience = comm::Seconds(patience),
                                             .answer = comm::Seconds(env::heartbeat()),
                                             .contact = comm::tcp_contact(store)};
  return std::make_unique<comm::Membership>(std::move(store), membership, comm::host_identity("net"),
                                            concat("a rank (pid ", ::getpid(), " on ", comm::host_name(), ")"));
}

void settle_process(const comm::Place& place, const ParallelOptions& options, ExecutionOptions& execution) {
  const comm::Job job{
      .rank = place.rank, .size = place.size, .local_rank = place.local_rank, .local_size = place.local_size};
  check_strategy(options, job, true);
  execution.device = device_of(options, execution.device, job, place.local_size > 1);
  execution.threads = threads_of(execution, place.local_size);
}

World open_world(comm::Membership& membership, const comm::Place& place, const ParallelOptions& options,
                 const ExecutionOptions& execution) {
  World world;
  world.membership = &membership;
  world.job = membership.open(place.local_rank, place.local_size);
  try {
    if (world.size() > 1)
      world.own = std::make_unique<comm::ProcessGroup>(transport_of(options, execution.device, world.job));
  } catch (const CommError& e) {
    membership.give_up(e.what());  // before the end of the job, whose hub knows no causes
    throw;
  }
  return world;
}

bool wants_ranks(const ParallelOptions& options) {
  return options.devices > 1 && options.entry().starts_ranks() && !comm::place_of_process();
}

int run_as_processes(int ranks, const std::vector<std::string>& arguments, bool elastic) {
  comm::Launch launch;
  launch.command = {""};
  launch.command.insert(launch.command.end(), arguments.begin(), arguments.end());
  launch.local_size = ranks;
  launch.token = comm::random_token();
  launch.prefix = false;
  launch.elastic = elastic;
  if (elastic) launch.max_restarts = comm::kElasticRestarts;
  return comm::launch(launch);
}

}  // namespace ringtape
