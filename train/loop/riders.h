#pragma once
#include "comm/parallel/reducer.h"

namespace ringtape {

// What each rank adds to a step's gradients, to be summed over the ranks.
enum Rider : size_t {
  kStop,    // it asks to stop
  kChange,  // it asks for other ranks: one comes or goes
  kEnd,     // it asks that the training ends with this step
  kTop1,
  kTop5,  // of its samples, those that are right
  kRiders
};
using Riders = comm::Reducer::Riders;
static_assert(kRiders == Riders{}.size());

}  // namespace ringtape
