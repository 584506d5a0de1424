// What becomes of a rank of an elastic job that has ended.
#include <algorithm>

#include "comm/job/membership.h"
#include "comm/launch/attempt.h"
#include "comm/store/tcp_store.h"
#include "core/check.h"
#include "core/env.h"

namespace ringtape::comm {

namespace {

constexpr Seconds kShortLife{10}, kFirstPause{0.1}, kLongestPause{10};
constexpr int kReadsOfAPipe = 8;  // enough for all that it holds

}  // namespace

void Attempt::settle(Rank& r) {
  const auto no = refusal(r);
  std::string what;
  if (no) {
    what = concat("not started again: ", no->why);
    const auto others = std::ranges::count_if(ranks_, [](const Rank& other) { return other.running || other.again; });
    if (!no->ends_all && !kill_at_ && others > 0)
      what += concat(", ", others, others == 1 ? " rank goes on" : " ranks go on");
  } else {
    const bool hurries = r.number == number_ || r.seconds >= kShortLife.count();
    r.pause = hurries ? Seconds(0) : std::clamp(2 * r.pause, kFirstPause, kLongestPause);
    r.again = Deadline(r.pause);
    what = concat("started again ", hurries ? "" : concat("in ", r.pause.count(), " s "), "(", ++restarts_, " of ",
                  launch_.max_restarts, ")");
  }
  const std::string memory = r.code == 128 + SIGKILL ? out_of_memory() : "";
  if (!memory.empty()) oom_kills_ = launch_.groups.oom_kills();
  if (r.code != 0)
    display_.write(2, concat("ringtape: ", end_of(r), memory.empty() ? "" : concat(", ", memory), "; ", what, "\n"));
  if (r.code == 0 && !kill_at_) note_success();
  if (no && r.code != 0) note_failure(r);
  if (no && no->ends_all && r.code != 0) end_others();
}

std::optional<Attempt::Refusal> Attempt::refusal(const Rank& r) const {
  if (r.code == 0) return Refusal{"it is done"};
  if (stopped_) return Refusal{"the launcher was told to end", !kill_at_};
  if (deadline_.passed()) return Refusal{"--timeout has passed", !kill_at_};
  if (kill_at_) return Refusal{done_ ? "the job is done" : "the job has failed"};
  if (r.code == kPreempted) return Refusal{"it was asked to leave"};
  if (launch_.command[0].empty() && r.code == kWrongUsage) return Refusal{"wrong usage", true};
  if (auto over = end_of_job(Seconds(env::heartbeat()))) return over;
  if (restarts_ == launch_.max_restarts)
    return Refusal{launch_.max_restarts == 0 ? "--max-restarts 0" : concat(restarts_, " restarts are used up")};
  return std::nullopt;
}

// What the job's store, which may take `patience` to answer, says of its end; nullopt: it goes on.
std::optional<Attempt::Refusal> Attempt::end_of_job(Seconds patience) const {
  const bool hosts = launch_.node == 0 && !launch_.joins;
  try {
    const auto store = tcp_store({hosts ? "127.0.0.1" : launch_.master_addr, port_, launch_.token}, Deadline(patience));
    if (store->get(kDoneKey)) return Refusal{"the job is done"};
    const auto cause = store->get(kFailureKey);
    if (!cause) return std::nullopt;
    return Refusal{concat("the job has failed: ", cause->substr(0, cause->find('\n'))), true};
  } catch (const CommError& e) {
    return Refusal{e.what(), true};
  }
}

void Attempt::start_again(Rank& r) {
  drain(r, kReadsOfAPipe);  // processes that it left behind may go on writing
  if (!r.again) return;     // it was given up meanwhile
  if (r.pause.count() > 0)
    if (const auto over = end_of_job(Seconds(env::heartbeat()))) {
      give_up(r, over->why);
      if (over->ends_all) end_others();
      return;
    }
  if (lost_.empty()) lost_ = r.output->lost();
  if (r.bar) display_.bar("");
  try {
    ++r.number;
    start(r);
    r.again.reset();
  } catch (const std::exception& e) {
    give_up(r, e.what());
  }
}

void Attempt::give_up(Rank& r, const std::string& why) {
  r.again.reset();
  display_.write(2, concat("ringtape: rank ", r.rank, " is not started again: ", why, "\n"));
  note_failure(r);
}

void Attempt::give_up_waiting(const std::string& why) {
  for (Rank& r : ranks_)
    if (r.again) give_up(r, why);
}

// Once the job is done, ranks that hang are not waited for. The launcher that hosts the store may have gone already.
void Attempt::note_success() {
  const auto over = end_of_job(Seconds(1));
  done_ = over && !over->ends_all;
  if (done_) kill_at_ = Deadline(launch_.grace);
}

// A failure for good: the first counts. Ranks that left count only if all left, if all were told to, or if the last of
// them left: with what the failures of others had not ended.
void Attempt::note_failure(Rank& r) {
  const auto counts = [&](const Rank& each) { return (each.code == kPreempted) == stopped_; };
  const bool last_leaves = r.code == kPreempted && !goes_on() && !kill_at_;
  if (code_ == kTimedOut && !first_) return;
  if (first_ && !last_leaves && (counts(*first_) || !counts(r))) return;
  first_ = &r;
  code_ = r.code;
}

}  // namespace ringtape::comm
