#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/random.h"
#include "train/evaluation/metrics.h"
#include "train/io/json.h"

namespace ringtape {

// Seconds that a pass has taken, in all and by part.
struct PassSeconds {
  double whole = 0, data = 0, forward = 0, backward = 0, optimizer = 0;
};

// What the ranks of a training have told each other in a pass, as the first of them saw it.
struct PassTraffic {
  int64_t bytes = 0;                // handed to all_reduce, or sent between the devices of a process
  double seconds = 0, exposed = 0;  // gradients on their way; that it waited for them
};

// How far a training is. With the weights and the optimizer's state it decides all that comes after.
struct TrainState {
  int64_t step = 0;     // optimizer steps taken
  int64_t epoch = 0;    // whole epochs, each with its validation
  int64_t batch = 0;    // batches of the epoch after those
  Tally::Totals tally;  // of that epoch, as its seconds are
  PassSeconds seconds;
  PassTraffic traffic;
  RandomState random;             // of default_generator()
  // Of each rank's, as they draw for their own samples; empty where there is one rank, or no step yet.
  std::vector<int64_t> counters;
  std::vector<int64_t> parameter_steps;  // Optimizer::own_steps(): empty where all parameters have taken all steps
  struct Best {
    int64_t step = 0;
    double top1 = 0;
  };
  std::optional<Best> best;                // the validation with the highest accuracy
  std::map<std::string, int64_t> lengths;  // bytes of the run's growing files, by name
};

// Throws FormatError, beginning with `where`, for an object that is not one: each number is of its
// kind and in its range, and those that go together do. In epochs of `steps_per_epoch` (0: not
// known) the batches and steps must be where they can be.
Json to_json(const TrainState& state);
TrainState parse_train_state(const Json& json, const std::string& where, int64_t steps_per_epoch = 0);

}  // namespace ringtape
