#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/random.h"
#include "train/evaluation/metrics.h"
#include "train/optim/schedule.h"

namespace ringtape {

class Json;  // train/io/json.h

// Seconds of a pass: the total and its parts.
struct PassSeconds {
  double total = 0, data = 0, forward = 0, backward = 0, optimizer = 0;
};

// Communication of a pass, as rank 0 saw it.
struct PassTraffic {
  int64_t bytes = 0;                // passed to all_reduce, or sent between devices of one process
  double seconds = 0, exposed = 0;  // while gradients were in transit; while rank 0 waited for them
};

// The progress of a run. With the weights and the optimizer's state, it determines the rest of the run.
struct TrainState {
  int64_t step = 0;     // optimizer steps taken
  int64_t epoch = 0;    // completed epochs, including their validation
  int64_t batch = 0;    // batches of the next epoch that are done
  Tally::Totals tally;  // tally, seconds and traffic: of that epoch
  PassSeconds seconds;
  PassTraffic traffic;
  bool reported = false;  // whether the metrics of its training were, so that only its validation is missing
  int64_t validated = 0;  // the step of the newest validation within an epoch
  RandomState random;     // of default_generator()
  // The generator's counter on each rank, since each draws for its own samples; empty with one rank or before the first
  // step.
  std::vector<int64_t> counters;
  std::vector<int64_t> parameter_steps;  // Optimizer::own_steps(); empty if all parameters have taken all steps
  struct Best {
    int64_t step = 0;
    double score = 0;  // higher is better: an accuracy, or the negative loss; see --best-by
  };
  std::optional<Best> best;  // the validation with the highest score
  struct Improved {
    int64_t epoch = 0;
    double score = 0;
  };
  std::optional<Improved> improved;        // the newest validation that --patience counts as better
  std::optional<Watched> watched;          // what the schedule knows of validations
  double trained = 0;                      // seconds of training up to here, for --max-time
  std::map<std::string, int64_t> lengths;  // bytes of the run's growing files, by name

  int64_t epochs_begun() const { return epoch + (batch > 0 ? 1 : 0); }
};

// parse_train_state() throws FormatError, beginning with `where`, for an object that is not a valid state: each number
// must have its type and range, and related numbers must agree. `steps_per_epoch` (0: unknown) bounds batches and
// steps.
Json to_json(const TrainState& state);
TrainState parse_train_state(const Json& json, const std::string& where, int64_t steps_per_epoch = 0);

}  // namespace ringtape
