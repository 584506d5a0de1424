#pragma once
#include "train/loop/evaluate.h"
#include "train/optim/ema.h"

namespace ringtape {

// While it lives, a task's model has the weights of Ema, and running statistics of batch normalisation that belong to
// them: those of the training are of other weights, with which the averaged ones may be no better than chance. All
// ranks create it together.
class AveragedModel {
 public:
  static constexpr size_t kImages = 2048;  // of which the statistics are, at most

  // `statistics`: running_statistics() of these weights from before; empty: they are computed, as by PyTorch's
  // update_bn, of the first kImages of `samples`, which train, without augmentation. Each rank computes all of them,
  // and so gets the same bytes.
  AveragedModel(const Task& task, const Ema& ema, const std::vector<int64_t>& samples, const Tensors& statistics,
                const EvalOptions& options);

 private:
  // The statistics of the training, while the model has others.
  struct Kept {
    explicit Kept(nn::Module& model);
    ~Kept();
    Kept(const Kept&) = delete;
    Kept& operator=(const Kept&) = delete;
    Tensors of_model, before;
  };
  Ema::Use weights_;
  Kept kept_;
};

}  // namespace ringtape
