#pragma once
#include <functional>
#include <memory>
#include <optional>

#include "nn/module.h"
#include "train/optim/ema.h"
#include "train/optim/gradient_scale.h"
#include "train/optimizers.h"

namespace ringtape {

// The parts of a step that are timed.
enum class Phase : uint8_t { forward, backward, optimizer };

// One optimization step after the other: what is done to a model with a batch. Nothing in it waits for the device.
class Step {
 public:
  // Takes the model's parameters into flat buffers. Of the options: optimizer and its settings, label-smoothing, precision,
  // accumulate, clip-grad-norm, ema.
  Step(nn::Module& model, const TrainOptions& options);

  struct Result {
    Tensor loss;    // (): the mean over the batch
    Tensor logits;  // (B, C)
  };
  // x (B, ...), y (B) i64. `ended` is called as each phase ends, once for each part of an accumulated batch.
  Result run(const Tensor& x, const Tensor& y, double lr, const std::function<void(Phase)>& ended = {});

  int64_t count() const { return optimizer_->steps(); }  // steps so far
  const GradientScale& gradient_scale() const { return scale_; }
  const Ema* ema() const { return ema_ ? &*ema_ : nullptr; }

  // With count(), the weights and average() all that a continuation needs: views, to be written or read into.
  std::vector<NamedTensor> state() const;
  void set_count(int64_t steps) { optimizer_->set_steps(steps); }
  std::vector<NamedTensor> average() const;  // the averaged parameters and the buffers, as files hold them; none without ema

 private:
  Result forward_backward(const Tensor& x, const Tensor& y, double share, const std::function<void(Phase)>& ended);
  Result run_parts(const Tensor& x, const Tensor& y, const std::function<void(Phase)>& ended);

  nn::Module& model_;
  double label_smoothing_;
  int64_t accumulate_;
  DType precision_;
  FlatParameters parameters_;
  std::unique_ptr<Optimizer> optimizer_;
  GradientScale scale_;
  std::optional<Ema> ema_;
};

}  // namespace ringtape
