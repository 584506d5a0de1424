#pragma once
#include <optional>
#include <string>

#include "core/fields.h"
#include "train/checkpoint/state.h"

namespace ringtape {

// What ends a training before its epochs do. It ends as a finished one; --resume with larger limits goes on.
struct LimitOptions {
  int64_t max_steps = 0;  // of the whole run; 0: no limit
  std::string max_time;   // of training, in the whole run: "90s", "10m", "2h"; empty: no limit
  int64_t patience = 0;   // epochs without a better validation; 0: no limit
  double min_delta = 0;   // by which the score of a validation must be higher to count
  bool operator==(const LimitOptions&) const = default;
};
void visit(Fields& f, LimitOptions& o);

// Of "90s", "10m", "1.5h", "2d", "1h30m", or a number of seconds. Throws UsageError, beginning with `origin`.
double seconds_of(const std::string& duration, const std::string& origin);

// Throws UsageError if a run in this state has trained for longer.
void check_before_end(const TrainState& state, int64_t epochs, const LimitOptions& limits);

// Notes the score of the validation after `epoch` epochs, if it is a better one by more than min_delta.
void note_validation(std::optional<TrainState::Improved>& newest, int64_t epoch, double score, double min_delta);

}  // namespace ringtape
