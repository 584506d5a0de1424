#pragma once
#include <memory>
#include <optional>

#include "comm/job/membership.h"
#include "comm/job/place.h"
#include "comm/parallel/data_parallel.h"
#include "comm/process_group.h"
#include "train/loop/execution.h"
#include "train/strategy/parallel.h"

namespace ringtape {

// The processes that train together, and this one's rank.
struct World {
  comm::Job job{};                            // of one rank if no launcher started this process
  std::unique_ptr<comm::ProcessGroup> own{};  // null for one rank; destroyed before `job`

  comm::ProcessGroup& group() const { return own ? *own : comm::alone(); }
  int size() const { return job.size; }
  bool leads() const { return job.rank == 0; }
  comm::Membership* membership = nullptr;            // whose generation these ranks are; null: they stay to the end
  std::optional<comm::Clock::time_point> stopped{};  // when this process stopped in the generation before
  // Tells the other ranks why this rank fails. If another rank failed first, waits 0.2 s so that the launcher, which
  // reports the first process to exit, reports that one. No effect with one rank.
  void fail(const std::string& cause) noexcept;
  bool ended_by_another() const;  // whether another rank failed first
};

// The devices of this process with --strategy dp and ddp2; empty for the other strategies.
comm::Devices devices_of(const ParallelOptions& options, DeviceType type);

// Joins the ranks that a launcher started with this one; returns when all have come. Sets device and threads in
// `execution` to those of this rank: its device, its share of the machine's threads. Throws UsageError if the options
// contradict the launcher.
World join_world(const ParallelOptions& options, ExecutionOptions& execution);

// The same for ranks that come and go: options.elastic. The processes of the job, from which open_world() makes the
// ranks of a generation. `ranks`: of the first one; `batch`: images of a batch, at least one for each rank.
std::unique_ptr<comm::Membership> join_membership(std::shared_ptr<comm::Store> store, const comm::Place& place,
                                                  const ParallelOptions& options, int ranks, int64_t batch);
// Sets device and threads in `execution` to those of this process.
void settle_process(const comm::Place& place, const ParallelOptions& options, ExecutionOptions& execution);
World open_world(comm::Membership& membership, const comm::Place& place, const ParallelOptions& options,
                 const ExecutionOptions& execution);

// Whether the options need several ranks and no launcher has started them, so that this process must start them.
bool wants_ranks(const ParallelOptions& options);

// Starts `ranks` processes of this executable with these arguments; each finds its rank in the environment. `elastic`:
// they may come and go. Returns the launcher's exit code.
int run_as_processes(int ranks, const std::vector<std::string>& arguments, bool elastic = false);

}  // namespace ringtape
