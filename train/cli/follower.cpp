#include <unistd.h>

#include "core/cgroup.h"
#include "train/cli/introduction.h"
#include "train/cli/training_run.h"
#include "train/run/metrics_log.h"
#include "train/run/rank_log.h"

namespace ringtape::cli {

std::string newest_lines(const Backlog* backlog) {
  constexpr size_t kMax = 20;
  std::string out;
  for (size_t i = 0; backlog && i < std::min(backlog->size(), kMax); ++i)
    out.insert(0, json_line((*backlog)[backlog->size() - 1 - i]) + "\n");
  return out;
}

namespace {

class Follower : public Role {
 public:
  Follower(const RunSetup& setup, const Backlog* backlog) : setup_(setup), backlog_(backlog) {}
  void begin(Trainer& trainer, const World& world) override;
  bool train(Trainer& trainer, const World& world) override;

 private:
  const RunSetup& setup_;
  const Backlog* const backlog_;
};

void Follower::begin(Trainer& trainer, const World& world) {
  const TrainOptions& o = setup_.options;
  rank_log(concat("rank ", world.job.rank, " of ", world.size(), " on ", o.execution.device, ", ",
                  device_text(setup_.device), ", ", threads_text(o.execution), ", cores ", allowed_cpus_text(),
                  "; process ", ::getpid(), " on ", world.job.host));
  trainer.set_rank_log(rank_log);
  (void)trainer.share_state(world.membership ? std::max(world.membership->assignment().source, 0) : 0,
                            newest_lines(backlog_));
}

bool Follower::train(Trainer& trainer, const World& world) {
  trainer.trace_into(kTraceFile);  // which rank 0 writes
  if (!trainer.fit({})) return false;
  trainer.export_weights();
  if (world.membership) world.membership->wait_until_done();
  return true;
}

}  // namespace

std::unique_ptr<Role> follower(const RunSetup& setup, const Backlog* backlog) {
  return std::make_unique<Follower>(setup, backlog);
}

}  // namespace ringtape::cli
