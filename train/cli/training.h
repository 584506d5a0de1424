#pragma once
#include "comm/job/place.h"
#include "train/cli/common.h"
#include "train/settings/run_setup.h"

// Shared by `train` and `pretrain`.
namespace ringtape::cli {

// Trains as one process of a job whose ranks come and go (--elastic); returns the exit code. `path`: of the existing
// run that is resumed; empty: none.
int train_elastically(TrainOptions options, const comm::Place& place, const Invocation& invocation,
                      const std::string& path);

// The task of a training with these resolved options. `path`: of the existing run that is resumed; empty: none. Throws
// UsageError if it has other classes.
std::unique_ptr<RunSetup> set_up(TrainOptions options, const std::string& path, bool leads,
                                 const std::function<void()>& reading = {});

// With --batch-size-per-rank, another number of ranks would change the batch of a resumed run, which is at `path`: then
// throws UsageError.
void check_same_batch(const TrainOptions& options, const std::string& path, int64_t ranks);

// Trains as the command line says; returns the exit code.
int run_training(const Invocation& invocation, Use use);

}  // namespace ringtape::cli
