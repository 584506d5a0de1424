#include "comm/launch/elastic.h"

#include <deque>

#include "comm/base/host_name.h"
#include "comm/health/report.h"
#include "comm/launch/launch.h"
#include "core/log.h"
#include "core/printable.h"
#include "train/cli/introduction.h"
#include "train/cli/standard_streams.h"
#include "train/cli/training.h"
#include "train/cli/training_run.h"
#include "train/run/stop.h"

namespace ringtape::cli {
namespace {

constexpr const char* kOpenedKey = "train/opened";  // once a leader has opened the folder of the run

// One process of a training whose ranks come and go: what it keeps from one generation to the next.
class Elastic {
 public:
  Elastic(RunSetup& setup, comm::Store& store, comm::Membership& membership, const comm::Place& place,
          const Invocation& invocation, bool said)
      : setup_(setup), o_(setup.options), store_(store), membership_(membership), place_(place),
        invocation_(invocation), said_(said) {}
  bool run();  // false: this process leaves before the training is whole

 private:
  comm::Progress progress() const;
  bool train(const World& world);
  void keep(Trainer& trainer);
  // Whether others go on without this process: they have a state of the training, and it has none yet.
  bool is_guest() const { return !has_state_ && membership_.assignment().source >= 0; }
  Earlier earlier_run() const;

  RunSetup& setup_;
  const TrainOptions& o_;
  comm::Store& store_;
  comm::Membership& membership_;
  const comm::Place& place_;
  const Invocation& invocation_;
  const bool said_;
  std::optional<Carried> carried_;  // between two generations
  bool has_state_ = false;          // of the training, not only initial values
  bool leaves_ = false;
  std::optional<comm::Clock::time_point> stopped_;  // when the last generation ended
  std::unique_ptr<Role> leader_;                    // of a process that leads once it does: to the end
  Backlog backlog_;
};

comm::Progress Elastic::progress() const {
  return has_state_ ? comm::Progress{carried_->state.step, carried_->state.epoch} : comm::Progress{};
}

// Only the job's first leader does with an earlier run what the command line says. Another takes its place; that one
// may be stopped and hold its files, not dead.
Earlier Elastic::earlier_run() const {
  if (!store_.get(kOpenedKey)) return earlier(o_.run);
  return membership_.assignment().source >= 0 ? Earlier::take_over : Earlier::resume;
}

void Elastic::keep(Trainer& trainer) {
  stopped_ = comm::Clock::now();
  carried_ = trainer.carry();
  leaves_ = trainer.leaves();
}

bool Elastic::train(const World& world) {
  Trainer trainer = make_trainer(setup_, world.group(), &membership_);
  if (carried_) trainer.take(*carried_);
  else carried_ = trainer.carry();  // the initial weights, if others do not give theirs
  stop_after_step();
  std::unique_ptr<Role> follows;
  if (world.leads() && !leader_) {
    leader_ = leader(setup_, invocation_, said_, earlier_run(), &backlog_);
    store_.set(kOpenedKey, "1");
  }
  if (!world.leads()) follows = follower(setup_, &backlog_);
  Role& role = world.leads() ? *leader_ : *follows;
  trainer.set_backlog([this](const Metrics& m) {
    constexpr size_t kMax = 1000;  // lines
    backlog_.push_back(m);
    if (backlog_.size() > kMax) backlog_.pop_front();
  });
  role.begin(trainer, world);
  carried_.reset();
  has_state_ = true;
  try {
    return role.train(trainer, world);
  } catch (const Error&) {
    keep(trainer);
    throw;
  }
}

bool Elastic::run() {
  comm::Membership::End end = comm::Membership::End::none;
  for (std::string cause;;) {
    const comm::Assignment assignment = membership_.next(progress(), end, cause);
    if (assignment.number > 1 && membership_.rank() > 0 && membership_.speaks_for_host())
      log_info(assignment.summary());
    std::string failed;
    try {
      World world = open_world(membership_, place_, o_.parallel, o_.execution);
      world.stopped = stopped_;
      try {
        return train(world);
      } catch (const RanksChange&) {
        if (leaves_ && leader_) leader_->leave();
        if (leaves_) return false;
        end = comm::Membership::End::change, cause.clear();
        continue;
      } catch (const CommError& e) {
        failed = e.what();
      }
    } catch (const CommError& e) {  // the ranks did not meet
      failed = e.what();
    } catch (const std::exception& e) {
      if (!is_guest()) membership_.fail(concat("rank ", membership_.rank(), " on ", comm::host_name(), ": ", e.what()));
      throw;
    }
    // A connection may break before the store knows why. What is an error all the same comes again: Assignment::stalls.
    if (!membership_.failed()) membership_.give_up(failed);
    if (is_guest() && membership_.failed_here()) throw CommError(failed);
    end = comm::is_timeout(failed) ? comm::Membership::End::timeout : comm::Membership::End::failure, cause = failed;
  }
}

// An error before the first generation ends the job: it is in the settings or the data, and nothing is lost.
std::unique_ptr<RunSetup> prepare(comm::Store& store, const std::function<std::unique_ptr<RunSetup>()>& make) {
  try {
    return make();
  } catch (const std::exception& e) {
    if (!comm::Membership::has_begun(store)) store.set_once(comm::kFailureKey, e.what());
    throw;
  }
}

}  // namespace

int train_elastically(TrainOptions options, const comm::Place& place, const Invocation& invocation,
                      const std::string& path) {
  const auto store = comm::lasting_store(place);
  const int ranks = std::atoi(store->set_once(comm::kRanksKey, text(place.size)).c_str());  // its launcher set it
  check_same_batch(options, path, ranks);
  settle_process(place, options.parallel, options.execution);
  const bool leads = place.rank == 0;
  const auto setup = prepare(*store, [&] {
    options = resolve(std::move(options), ranks);
    if (leads && !options.run.json) print_line(printable(first_line(options)));
    return set_up(options, path, leads);
  });
  const auto membership = join_membership(store, place, options.parallel, ranks, options.trainer.batch_size);
  try {
    return Elastic(*setup, *store, *membership, place, invocation, leads).run() ? 0 : comm::kPreempted;
  } catch (const comm::JobDone&) {
    return 0;
  } catch (const CommError& e) {
    if (!stop_requested()) throw;
    log_warn("stopped by a signal while another rank ended: ", kWithoutCheckpoint, ": ", e.what());
    return comm::kPreempted;
  }
}

}  // namespace ringtape::cli
