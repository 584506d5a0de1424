#pragma once
#include <cstdint>
#include <string>

#include "train/checkpoint/checkpoint_options.h"
#include "train/run/run_dir.h"

namespace ringtape {

// What shows that a run has saved a checkpoint, in words; empty: nothing does. It is the run's own record, a summary in
// its metrics, or, since earlier versions kept no record, metrics of steps after a checkpoint that was due. `due`: as
// the run had it so far. Throws IoError if one of these files cannot be read.
std::string sign_of_checkpoints(const RunDir& run, const CheckpointOptions& due, int64_t steps_per_epoch);

}  // namespace ringtape
