#pragma once
#include <map>
#include <memory>
#include <string>

#include "comm/job/membership.h"
#include "train/checkpoint/checkpoint.h"
#include "train/checkpoint/checkpoint_options.h"
#include "train/loop/callback.h"
#include "train/loop/learner.h"
#include "train/loop/trainer_options.h"
#include "train/optim/schedule.h"
#include "train/trace/step_trace.h"

namespace ringtape {

// The components of a training, each made from its own settings, and what the loop itself is told.
struct Training {
  Task& task;
  comm::ProcessGroup& group;
  std::unique_ptr<Learner> learner;
  std::unique_ptr<Loader> loader;
  std::unique_ptr<Step> step;
  Callbacks callbacks;
  Schedule schedule;
  StepTrace trace;
  EvalOptions evaluation;
  int64_t epochs = 1;
  LimitOptions limits;
  CheckpointOptions checkpoint;
  int64_t val_every = 0;                 // TrainerOptions
  int64_t log_every = 0, snapshots = 0;  // RunOptions
  uint64_t seed = 1;
  const comm::Membership* membership = nullptr;      // the ranks come and go; null: they stay
  Course course = {};                                // except `files`
  std::map<std::string, std::string> metadata = {};  // of files of weights
};

}  // namespace ringtape
