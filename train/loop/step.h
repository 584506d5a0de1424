#pragma once
#include <functional>
#include <memory>
#include <optional>

#include "train/evaluation/metrics.h"
#include "train/loop/execution.h"
#include "train/loop/objective.h"
#include "train/loop/riders.h"
#include "train/optim/ema.h"
#include "train/optim/gradient_scale.h"
#include "train/optim/optimizers.h"
#include "train/strategy/placement.h"
#include "train/trace/phase.h"

namespace ringtape {

// The batch of a step over all ranks.
struct GlobalBatch {
  int64_t samples = 0;  // total over all ranks; 0: this rank has all
  Riders riders = {};   // what this rank asks for
  bool counts = false;  // whether the result has the numbers of right samples; the host waits for them
  bool apart = false;   // whether each phase is to be seen: nothing is recorded or repeated
};

struct StepOptions {
  Selection optimizer{optimizers(), "adam"};
  int64_t accumulate = 1;
  double clip_grad_norm = 0;  // 0: no clipping
  double ema = 0;             // 0: none
  double label_smoothing = 0;
  std::string class_weights = "none";  // see class_weights()
};
void visit(Fields& f, StepOptions& o);  // except the settings of each optimizer

// Optimization steps: forward, backward and update of a model for one batch at a time. It never waits for the device.
class Step {
 public:
  // Moves the model's parameters into flat buffers. All ranks of the group have the same model and options; each gets
  // its part of every batch, and gradients are summed over the ranks. Of `execution`, only precision and deterministic
  // are used.
  Step(nn::Module& model, Objective objective, const StepOptions& options, const ExecutionOptions& execution = {},
       comm::ProcessGroup& group = comm::alone(), const ParallelOptions& parallel = {});

  ~Step();  // the end of weights that ranks share: no tensor of the model is used after it

  // Calls f, which writes weights, where they are: Moment::write_weights(). All ranks call it, between steps.
  void write_weights(const std::function<void()>& f) const { placement_->write_weights(f); }

  // How the optimizer trains each of the parameters; see rules_of().
  void set_rules(std::vector<ParameterRule> rules);
  // Parameters whose names begin with `prefix` learn at rate `lr`, whatever rate run() gets.
  void fix_lr(const std::string& prefix, double lr);

  // From now on, steps that do the same work are recorded and repeated with a few launches, if this process has one GPU
  // (train/loop/step_graph.h): call it if their work depends only on shapes and on Module::form(). No effect on a CPU,
  // and for placements and optimizers that cannot be repeated.
  void record_steps();

  // From the next step on. Throws UsageError if the optimizer has no momentum.
  void set_momentum(double momentum);

  // With record_steps(), tensors are overwritten by the next step.
  struct Result {
    Tensor loss;          // (): the mean over the batch of all ranks
    Tensor logits;        // of this rank's samples; undefined without samples or without logits
    Tensor own;           // (): this rank's share of the sum that makes `loss`
    Tensor spread;        // (): the objective's, on this rank
    Tensor ranks;         // (B): ranks_of() the logits; undefined without them, and with GlobalBatch::counts
    Tally::Totals right;  // GlobalBatch::counts: over all ranks, the samples whose label has the (five) highest
  };
  // Images, one tensor (B, ...) per view, and their labels (B). `ended` is called at the end of each phase, once for
  // each part of an accumulated batch.
  Result run(const Tensors& images, const Labels& y, double lr, const std::function<void(StepPhase)>& ended = {},
             GlobalBatch global = {});
  Result run(const Tensor& x, const Labels& y, double lr, const std::function<void(StepPhase)>& ended = {},
             GlobalBatch global = {}) {
    return run(Tensors{x}, y, lr, ended, global);
  }

  int64_t count() const { return optimizer_->steps(); }  // steps so far
  std::vector<int64_t> own_counts() const { return optimizer_->own_steps(); }
  const GradientScale& gradient_scale() const { return scale_; }
  const Ema* ema() const { return ema_ ? &*ema_ : nullptr; }
  const Placement& placement() const { return *placement_; }  // where its numbers are, what ranks have sent
  // Of this rank's weights, their gradients, the optimizer's state, the average and a teacher's weights.
  int64_t state_bytes() const;

  // With count(), own_counts(), weights() and average(), all that a resume needs: checkpoints write it and read into
  // it, on rank 0, within exchange().
  std::vector<FileTensor> state() const;
  std::vector<FileTensor> weights() const;  // parameters and buffers, in the order of files
  void set_count(int64_t steps, const std::vector<int64_t>& own = {}) { optimizer_->set_steps(steps, own); }
  // The averaged parameters and the buffers, with average_statistics(), in the order of files (in_file_order); empty
  // without ema.
  std::vector<FileTensor> average() const;
  // The running statistics that belong to the average; see AveragedModel. Empty without ema.
  const Tensors& average_statistics() const { return average_statistics_; }
  void set_average_statistics();  // to the model's, which has the average now
  void restart_average() {        // from the current weights
    if (ema_) ema_->restart();
  }
  // Rank 0 calls f, which may use state(), weights() and average(), and the model's tensors one after another, while
  // the other ranks give it what they hold. All ranks call it.
  void exchange(const std::function<void()>& f) const { placement_->on_rank_zero(f); }
  bool finite() const;  // whether all parameters are finite; waits for the device
  // What must be equal on all ranks: all parameters and buffers(); without shards also the parameters' average and the
  // optimizer's state.
  std::vector<Tensor> replicated() const;
  std::vector<Tensor> buffers() const;  // the model's, without those of which ranks hold their own elements only

 private:
  Result compute(const Tensors& images, const Labels& y, double lr, const std::function<void(StepPhase)>& ended,
                 GlobalBatch global);
  Result gradients(const Tensors& images, const Labels& y, GlobalBatch global,
                   const std::function<void(StepPhase)>& ended);
  // step_shares.cpp
  Result share_gradients(const Tensors& images, const Labels& y, GlobalBatch global,
                         const std::function<void(StepPhase)>& ended);
  Tensors own_buffers() const;
  std::vector<FileTensor> files(const std::string& prefix, const Tensor& buffer) const;
  // And frozen parameters. `statistics`: instead of the model's running statistics; empty: those.
  void add_buffers(std::vector<FileTensor>& tensors, const Tensors& statistics) const;

  nn::Module& model_;
  const Objective objective_;
  int64_t accumulate_;
  bool synchronized_;  // modules communicate: ranks without samples also run them
  DType precision_;
  const std::unique_ptr<Placement> placement_;
  std::unique_ptr<Optimizer> optimizer_;
  GradientScale scale_;
  std::optional<Ema> ema_;
  Tensors average_statistics_;
  std::unique_ptr<class StepGraph> graph_;  // null: nothing is recorded
};

}  // namespace ringtape
