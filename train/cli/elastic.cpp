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
  Elastic(RunSetup& setup, comm::Store& store, comm::Crew& crew, const comm::Place& place, const Invocation& invocation,
          bool said)
      : setup_(setup), o_(setup.options), store_(store), crew_(crew), place_(place), invocation_(invocation),
        said_(said) {}
  bool run();  // false: this process leaves before the training is whole

 private:
  comm::Standing standing() const;
  bool train(const World& world);
  void keep(Trainer& trainer);
  // Whether others go on without this process: they have a state of the training, and it has none yet.
  bool is_guest() const { return !has_state_ && crew_.deal().source >= 0; }
  Earlier earlier_run() const;

  RunSetup& setup_;
  const TrainOptions& o_;
  comm::Store& store_;
  comm::Crew& crew_;
  const comm::Place& place_;
  const Invocation& invocation_;
  const bool said_;
  std::optional<Carried> carried_;  // between two generations
  bool has_state_ = false;          // of the training, not only initial values
  bool leaves_ = false;
  std::optional<comm::Clock::time_point> stopped_;  // when the last generation ended
  std::unique_ptr<Role> leader_;                    // of a process that leads once it does: to the end
  Journal journal_;
};

comm::Standing Elastic::standing() const {
  return has_state_ ? comm::Standing{carried_->state.step, carried_->state.epoch} : comm::Standing{};
}

// Only the job's first leader does with an earlier run what the command line says. Another takes its place; that one
// may be stopped and hold its files, not dead.
Earlier Elastic::earlier_run() const {
  if (!store_.get(kOpenedKey)) return earlier(o_.run);
  return crew_.deal().source >= 0 ? Earlier::take_over : Earlier::resume;
}

void Elastic::keep(Trainer& trainer) {
  stopped_ = comm::Clock::now();
  carried_ = trainer.carry();
  leaves_ = trainer.leaves();
}

bool Elastic::train(const World& world) {
  Trainer trainer = make_trainer(setup_, world.group(), &crew_);
  if (carried_) trainer.take(*carried_);
  else carried_ = trainer.carry();  // the initial weights, if others do not give theirs
  stop_after_step();
  std::unique_ptr<Role> follows;
  if (world.leads() && !leader_) {
    leader_ = leader(setup_, invocation_, said_, earlier_run(), &journal_);
    store_.set(kOpenedKey, "1");
  }
  if (!world.leads()) follows = follower(setup_, &journal_);
  Role& role = world.leads() ? *leader_ : *follows;
  trainer.set_journal([this](const Metrics& m) {
    constexpr size_t kMost = 1000;  // lines
    journal_.push_back(m);
    if (journal_.size() > kMost) journal_.pop_front();
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
  comm::Crew::End end = comm::Crew::End::none;
  for (std::string cause;;) {
    const comm::Deal deal = crew_.next(standing(), end, cause);
    if (deal.number > 1 && crew_.rank() > 0 && crew_.speaks_for_host()) log_info(deal.summary());
    std::string failed;
    try {
      World world = open_world(crew_, place_, o_.parallel, o_.execution);
      world.stopped = stopped_;
      try {
        return train(world);
      } catch (const RanksChange&) {
        if (leaves_ && leader_) leader_->leave();
        if (leaves_) return false;
        end = comm::Crew::End::change, cause.clear();
        continue;
      } catch (const CommError& e) {
        failed = e.what();
      }
    } catch (const CommError& e) {  // the ranks did not meet
      failed = e.what();
    } catch (const std::exception& e) {
      if (!is_guest()) crew_.fail(concat("rank ", crew_.rank(), " on ", comm::host_name(), ": ", e.what()));
      throw;
    }
    // A connection may break before the store knows why. What is an error all the same comes again: Deal::stalls.
    if (!crew_.failed()) crew_.give_up(failed);
    if (is_guest() && crew_.failed_here()) throw CommError(failed);
    end = comm::is_timeout(failed) ? comm::Crew::End::timeout : comm::Crew::End::failure, cause = failed;
  }
}

// An error before the first generation ends the job: it is in the settings or the data, and nothing is lost.
std::unique_ptr<RunSetup> prepare(comm::Store& store, const std::function<std::unique_ptr<RunSetup>()>& make) {
  try {
    return make();
  } catch (const std::exception& e) {
    if (!comm::Crew::has_begun(store)) store.set_once(comm::kFailureKey, e.what());
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
  const auto crew = join_crew(store, place, options.parallel, ranks, options.trainer.batch_size);
  try {
    return Elastic(*setup, *store, *crew, place, invocation, leads).run() ? 0 : comm::kPreempted;
  } catch (const comm::JobDone&) {
    return 0;
  } catch (const CommError& e) {
    if (!stop_requested()) throw;
    log_warn("stopped by a signal while another rank ended: ", kWithoutCheckpoint, ": ", e.what());
    return comm::kPreempted;
  }
}

}  // namespace ringtape::cli
