#pragma once
#include <memory>
#include <optional>

#include "comm/job/rendezvous.h"
#include "comm/parallel/data_parallel.h"
#include "comm/process_group.h"
#include "train/loop/execution.h"
#include "train/loop/parallel.h"

namespace ringtape {

// The processes that train together, and this one's place among them.
struct World {
  comm::Job job{};                              // of one rank where no launcher started this process
  std::unique_ptr<comm::ProcessGroup> own{};    // of several; goes before the job

  comm::ProcessGroup& group() const { return own ? *own : comm::alone(); }
  int size() const { return job.size; }
  bool leads() const { return job.rank == 0; }
  // Ends the others with what has ended this rank. Where they have ended this one, lets them go first, so that a
  // launcher, which names the first that ends, names the one that failed. Does nothing alone.
  void fail(const std::string& cause) noexcept;
  bool ended_by_another() const;  // what has ended this rank is another's failure
};

// The devices of --strategy dp and ddp2 in this process; empty for the others.
comm::Devices devices_of(const ParallelOptions& options, DeviceType type);

// The ranks that a launcher started with this one, once all have come; device and threads become this rank's: its
// device, its share of the machine's threads. Throws UsageError where they ask for something else.
World join_world(const ParallelOptions& options, ExecutionOptions& execution);

// Whether these options want ranks that nobody has started yet, so that the process
// is to start them as a launcher would.
bool wants_ranks(const ParallelOptions& options);

// Starts the ranks as processes of this executable, with these arguments; they then find
// themselves in a job. Their exit code.
int run_as_processes(int ranks, const std::vector<std::string>& arguments);

}  // namespace ringtape
