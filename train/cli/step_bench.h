#pragma once
#include <memory>
#include <optional>

#include "comm/process_group.h"
#include "train/cli/command.h"
#include "train/data/loader.h"
#include "train/settings/run_setup.h"

namespace ringtape::cli {

// The settings of a step of which a benchmark measures something, beginning with `options`, and their flags; `model`:
// what is said of its default.
TrainOptions bench_step_options(const Invocation& invocation, TrainOptions options = {});
std::vector<Flag> bench_step_flags(const char* model);

// Measures training steps on random images. Supervised: on one fixed batch; the loader is measured separately.
// Self-supervised: on batches from the loader, as in a real run, since views are made for each step.
class StepBench {
 public:
  // Takes resolved options; the group must outlive this. pixels: of a side; 0: the model's own.
  StepBench(const TrainOptions& options, int64_t pixels, comm::ProcessGroup& group);

  // Seconds for `steps` steps on the slowest rank; the device is idle at the beginning and at the end.
  double run(int64_t steps);

  struct Phases {
    double data = 0, forward = 0, backward = 0, optimizer = 0;
  };
  // Seconds of the parts of a step, with batches from the loader. Waits for the device after each part, so on a GPU,
  // where the host otherwise runs ahead, the sum is more than the time of a step.
  Phases run_apart(int64_t steps);

  Device device() const { return task_.device; }
  const comm::Reducer* reducer() const { return step_->placement().reducer(); }
  comm::Reducer::Totals traffic() const { return step_->placement().traffic(); }
  int64_t state_bytes() const { return step_->state_bytes(); }

 private:
  Loader make_loader() const;
  Batch next();
  void step(const Batch& batch, const std::function<void(StepPhase)>& ended = {});
  double slowest(double seconds) const;

  const TrainOptions options_;
  comm::ProcessGroup& group_;
  Task task_;
  std::unique_ptr<Learner> learner_;
  std::unique_ptr<Step> step_;
  std::optional<Loader> loader_;
  std::optional<Loader::Epoch> epoch_;
  int64_t epochs_ = 0;  // epochs started
  Batch stays_;
};

}  // namespace ringtape::cli
