#pragma once
#include <memory>
#include <optional>

#include "comm/process_group.h"
#include "train/data/loader.h"
#include "train/loop/learner.h"
#include "train/loop/step.h"
#include "train/settings/options.h"

namespace ringtape::cli {

// Training steps on generated images. With labels: on one batch that stays, what the loader adds being measured apart.
// Of a self-supervised method: on batches from the loader, as a user trains, since views are made anew for each step.
class StepBench {
 public:
  // Resolved options; the group outlives it.
  StepBench(const TrainOptions& options, comm::ProcessGroup& group);

  // Seconds that `steps` steps took, on the slowest rank, from a moment when the
  // device was idle until it is idle again.
  double run(int64_t steps);

  struct Phases {
    double data = 0, forward = 0, backward = 0, optimizer = 0;
  };
  // Seconds of the parts of a step, batches coming from the loader. Each is waited for: on a GPU, where the host is
  // otherwise ahead, they add up to more than a step.
  Phases run_apart(int64_t steps);

  Device device() const { return device_; }
  const comm::Reducer* reducer() const { return step_->reducer(); }

 private:
  Loader make_loader() const;
  Batch next();
  void step(const Batch& batch, const std::function<void(Phase)>& ended = {});
  double slowest(double seconds) const;

  const TrainOptions options_;
  comm::ProcessGroup& group_;
  const Device device_;
  std::unique_ptr<nn::Module> model_;
  std::unique_ptr<Learner> learner_;
  std::unique_ptr<Step> step_;
  std::optional<Loader> loader_;
  std::optional<Loader::Epoch> epoch_;
  int64_t epochs_ = 0;  // begun
  Batch stays_;
};

}  // namespace ringtape::cli
