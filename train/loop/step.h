#pragma once
#include <functional>
#include <memory>
#include <optional>

#include "train/loop/execution.h"
#include "train/loop/objective.h"
#include "train/loop/parallel.h"
#include "train/optim/ema.h"
#include "train/optim/gradient_scale.h"
#include "train/optim/optimizers.h"

namespace ringtape {

// The parts of a step that are timed.
enum class Phase : uint8_t { forward, backward, optimizer };

// What all ranks have at a step; see comm::Reducer::Step.
struct WholeBatch {
  int64_t samples = 0;  // on all ranks together; 0: one rank has all
  bool stop = false;    // whether this rank wishes to stop
};

struct StepOptions {
  Selection optimizer{optimizers(), "adam"};
  int64_t accumulate = 1;
  double clip_grad_norm = 0;  // 0: not
  double ema = 0;             // 0: none
  double label_smoothing = 0;
};
void visit(Fields& f, StepOptions& o);  // but for the settings of the optimizers themselves

// One optimization step after the other: what is done to a model with a batch. Nothing in it waits for the device.
class Step {
 public:
  // Takes the model's parameters into flat buffers. The ranks of the group all have the same model and options; each
  // gets its own part of every batch, and gradients are summed over them. Of the execution: precision and
  // deterministic.
  Step(nn::Module& model, Objective objective, const StepOptions& options, const ExecutionOptions& execution = {},
       comm::ProcessGroup& group = comm::alone(), const ParallelOptions& parallel = {});

  // The learning rate of the parameters whose names begin like that, whatever that of the others is.
  void fix_lr(const std::string& prefix, double lr) { optimizer_->fix_lr(prefix, lr); }

  struct Result {
    Tensor loss;    // (): the mean over the batch, all ranks' together
    Tensor logits;  // (B, C) of this rank's samples; undefined where it has none, or the objective
    Tensor own;     // (): the part of the loss that is of these
    Tensor spread;  // (): of the objective, on this rank
  };
  // Images, one tensor (B, ...) a view, and labels y (B) i64. `ended` is called as each phase ends, once for each part
  // of an accumulated batch.
  Result run(const Tensors& images, const Tensor& y, double lr, const std::function<void(Phase)>& ended = {},
             WholeBatch whole = {});
  Result run(const Tensor& x, const Tensor& y, double lr, const std::function<void(Phase)>& ended = {},
             WholeBatch whole = {}) {
    return run(Tensors{x}, y, lr, ended, whole);
  }

  int64_t count() const { return optimizer_->steps(); }  // steps so far
  std::vector<int64_t> own_counts() const { return optimizer_->own_steps(); }
  const GradientScale& gradient_scale() const { return scale_; }
  const Ema* ema() const { return ema_ ? &*ema_ : nullptr; }
  const comm::Reducer* reducer() const { return reducer_.get(); }  // null in a group of one

  // With count(), own_counts(), the weights and average() all that a continuation
  // needs: views, to be written or read into.
  std::vector<NamedTensor> state() const;
  void set_count(int64_t steps, const std::vector<int64_t>& own = {}) { optimizer_->set_steps(steps, own); }
  // The averaged parameters and the buffers, as files hold them; none without ema.
  std::vector<NamedTensor> average() const;
  bool finite() const;  // whether the parameters are; waits for the device
  // What ranks must have in common: the parameters, their average, the optimizer's state, the model's buffers.
  std::vector<Tensor> replicated() const;

 private:
  Result gradients(const Tensors& images, const Tensor& y, WholeBatch whole, const std::function<void(Phase)>& ended);
  Tensor gradient_memory(int64_t size, int64_t parameters, DType dtype, Device device);

  nn::Module& model_;
  const Objective objective_;
  // Of its own, so that the model's collectives need not wait behind gradients.
  const std::unique_ptr<comm::ProcessGroup> group_;
  int64_t accumulate_;
  bool synchronized_;
  DType precision_;
  Tensor memory_;  // of the reducer
  FlatParameters parameters_;
  std::unique_ptr<Optimizer> optimizer_;
  GradientScale scale_;
  std::optional<Ema> ema_;
  std::unique_ptr<comm::Reducer> reducer_;
};

}  // namespace ringtape
