#pragma once
#include "train/loop/lap_timer.h"
#include "train/loop/training.h"
#include "train/run/time_left.h"

namespace ringtape {

// Throws UsageError if a run in this state has trained for longer.
void check_before_end(const TrainState& state, int64_t epochs, const LimitOptions& limits);

// Notes the score of the validation after `epoch` epochs, if it is a better one by more than min_delta.
void note_validation(std::optional<TrainState::Improved>& newest, int64_t epoch, double score, double min_delta);

// Thrown by Trainer::fit() on every rank after a step, when ranks come or go.
struct RanksChange : Error {
  using Error::Error;
};

// When a training ends or stops: by limits, by signals, or because ranks come or go. All ranks get the same answers.
class StopRule {
 public:
  StopRule(const Training& parts, TrainState& at);

  void begin() { left_.emplace(steps(), p_.schedule.steps()), training_ = {}; }  // of fit()
  Riders ask();                                          // what this rank wants to follow the step
  void count_time() { at_.trained += training_.lap(); }  // of a step
  enum class Then : uint8_t { go_on, stop, change, end };
  Then after_step();                // what any rank has asked for
  bool ends();                      // between epochs, or where it goes on from: whether a limit ends it
  bool signalled() const;           // between epochs: whether a signal stops it
  void interrupted(int64_t stops);  // by so many ranks, within a validation or test: throws RanksChange unless all stop

  double seconds_left() const;                               // 0: not known yet
  double seconds_passed() const { return left_->passed(); }  // of fit()
  // After RanksChange: whether this rank is one that goes.
  bool leaves() const { return asked_to_stop_ && p_.group.size() > 1; }
  const std::string& ended_by() const { return ended_by_; }
  std::string end_text() const;

 private:
  bool stops_all(int64_t stops) const;  // whether too few are left without so many ranks
  bool time_is_up() const { return p_.group.rank() == 0 && time_limit_ && at_.trained >= *time_limit_; }
  int64_t steps() const { return p_.step->count(); }
  bool is_whole_epoch() const { return at_.batch == p_.schedule.steps_per_epoch(); }

  const Training& p_;
  TrainState& at_;
  LapTimer training_;             // since at_.trained was set
  std::optional<TimeLeft> left_;  // of fit(), if only steps end it
  std::optional<double> time_limit_;
  bool asked_to_stop_ = false;  // in the last step
  std::string ended_by_;
};

}  // namespace ringtape
