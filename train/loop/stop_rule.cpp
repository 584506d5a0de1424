#include "train/loop/stop_rule.h"

#include <algorithm>
#include <cmath>

#include "comm/parallel/agreement.h"
#include "train/run/stop.h"

namespace ringtape {

void check_before_end(const TrainState& s, int64_t epochs, const LimitOptions& limits) {
  RT_CHECK_AS(UsageError, s.epochs_begun() <= epochs, "--epochs ", epochs, ": the run has already trained ", s.epoch,
              " epochs", s.batch > 0 ? concat(" and ", s.batch, " steps") : "");
  RT_CHECK_AS(UsageError, limits.max_steps == 0 || s.step <= limits.max_steps, "--max-steps ", limits.max_steps,
              ": the run has already trained ", s.step, " steps");
}

void note_validation(std::optional<TrainState::Improved>& newest, int64_t epoch, double score, double min_delta) {
  if (!newest || score > newest->score + min_delta) newest = TrainState::Improved{epoch, score};
}

StopRule::StopRule(const Training& parts, TrainState& at) : p_(parts), at_(at) {
  if (!p_.limits.max_time.empty()) time_limit_ = seconds_of(p_.limits.max_time, "--max-time");
}

Riders StopRule::ask() {
  asked_to_stop_ = stop_requested();
  Riders out{};
  out[kStop] = asked_to_stop_, out[kChange] = p_.membership && p_.membership->change_is_due(), out[kEnd] = time_is_up();
  return out;
}

// A rank that is asked to stop leaves the others to go on, if there are enough of them.
StopRule::Then StopRule::after_step() {
  if (p_.membership && p_.membership->is_last()) return Then::stop;
  const comm::Reducer* const reducer = p_.step->placement().reducer();
  const Riders asked = reducer ? reducer->words().riders() : ask();
  if (stops_all(int64_t(asked[kStop]))) return Then::stop;
  if (asked[kStop] > 0 || asked[kChange] > 0) return Then::change;
  const bool last = steps() == p_.schedule.steps();
  if (is_whole_epoch() || !(last || asked[kEnd] > 0)) return Then::go_on;
  ended_by_ = last ? "max-steps" : "max-time";
  return Then::end;
}

bool StopRule::stops_all(int64_t stops) const {
  const int64_t needed = p_.membership ? std::max(p_.membership->options().min_ranks, 1) : p_.group.size();
  return stops > 0 && p_.group.size() - stops < needed;
}

bool StopRule::ends() {
  if (at_.epoch == p_.epochs) return true;
  if (is_whole_epoch()) return false;  // ranks changed after its last step: it is still to be reported
  const bool waited = p_.limits.patience > 0 && at_.improved && p_.learner->judges_after(at_.epoch, p_.epochs) &&
                      at_.epoch - at_.improved->epoch >= p_.limits.patience;
  if (steps() >= p_.schedule.steps()) ended_by_ = "max-steps";
  else if (time_limit_ && any_of(p_.group, time_is_up())) ended_by_ = "max-time";
  else if (waited && at_.batch == 0) ended_by_ = "patience";
  return !ended_by_.empty();
}

// With a membership, some of the ranks leave after the next step.
bool StopRule::signalled() const {
  return p_.membership ? !any_of(p_.group, !stop_requested()) : any_of(p_.group, stop_requested());
}

void StopRule::interrupted(int64_t stops) {
  asked_to_stop_ = stop_requested();
  if (!stops_all(stops)) throw RanksChange("ranks come or go");
}

double StopRule::seconds_left() const {
  const double left = left_->seconds(steps());
  return time_limit_ ? std::clamp(*time_limit_ - at_.trained, 0.0, left) : left;
}

std::string StopRule::end_text() const {
  const LimitOptions& l = p_.limits;
  const std::string where = concat("epoch ", at_.epochs_begun(), " of ", p_.epochs);
  if (ended_by_ == "max-steps") return concat("by --max-steps ", l.max_steps, ", in ", where);
  if (ended_by_ == "max-time") return concat("by --max-time ", l.max_time, " at step ", steps(), ", in ", where);
  if (ended_by_ != "patience") return "";
  const std::string& by = p_.checkpoint.best_by;
  const bool loss = by == "loss";
  const double score = std::round((loss ? -1e4 : 1e4) * at_.improved->score);
  return concat("by --patience ", l.patience, " after ", where, ": no validation was better than that of epoch ",
                at_.improved->epoch, " (",
                loss               ? "loss "
                : by == "balanced" ? "balanced "
                                   : "top-1 ",
                shortest(score / (loss ? 1e4 : 100)), loss ? ")" : " %)");
}

}  // namespace ringtape
