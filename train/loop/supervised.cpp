#include "autograd/ops.h"
#include "train/evaluation/features.h"
#include "train/loop/learner.h"
#include "train/loop/task.h"

// Learning with labels: cross-entropy, judged by a validation set.
namespace ringtape {

Objective cross_entropy_of(nn::Module& model, nn::DataParallel* replicas, double label_smoothing) {
  return [&model, replicas, label_smoothing](const Tensors& images, const Tensor& labels) -> Outcome {
    const Tensor logits = replicas ? (*replicas)(images[0]) : model(images[0]);
    return {.loss = cross_entropy(logits, labels, label_smoothing),
            .auxiliary_loss = {},
            .logits = logits.detach(),
            .spread = {}};
  };
}

namespace {

class Supervised : public Learner {
 public:
  Supervised(const TrainOptions& options, nn::Module& model, nn::DataParallel* replicas)
      : options_(options), model_(model), replicas_(replicas) {}

  std::string title() const override { return options_.model.name; }
  nn::Module& network() const override { return model_; }

  void check(const Holdout& split) const override {
    RT_CHECK_AS(UsageError, options_.checkpoint.exported == "last" || !split.val.empty(),
                "--export best: needs a validation to find the best weights; leave out --val-size 0");
  }
  LoaderConfig loading(LoaderConfig config) const override {
    config.augmentation = options_.augmentation;
    return config;
  }

  Objective objective() const override { return cross_entropy_of(model_, replicas_, options_.step.label_smoothing); }
  bool counts_right() const override { return true; }
  Tensor classify(const Tensor& x) const override { return replicas_ ? (*replicas_)(x) : model_(x); }

  bool judges_after(int64_t, const Holdout& split) const override { return !split.val.empty(); }
  std::vector<Metrics> judge(const Task& task, const Holdout& split, bool progress, comm::ProcessGroup& group,
                             Snapshot* snapshot) const override {
    return {evaluate(task, task.data.train, split.val, "val", progress, nullptr, group, snapshot)};
  }
  std::vector<Metrics> test(const Task& task, bool progress, comm::ProcessGroup& group,
                            Snapshot* snapshot) const override {
    return {evaluate(task, task.data.test, all_samples(task.data.test), "test", progress, nullptr, group, snapshot)};
  }
  const char* judged_split() const override { return "val"; }
  const char* final_split() const override { return "test"; }

  std::vector<NamedTensor> exported(const std::vector<NamedTensor>& weights) const override { return weights; }
  bool exports_backbone() const override { return false; }

 private:
  const TrainOptions& options_;
  nn::Module& model_;
  nn::DataParallel* replicas_;
};

}  // namespace

std::unique_ptr<Learner> supervised_learner(const TrainOptions& options, nn::Module& model,
                                            nn::DataParallel* replicas) {
  return std::make_unique<Supervised>(options, model, replicas);
}

std::unique_ptr<Learner> make_learner(const TrainOptions& options, nn::Module& model, nn::DataParallel* replicas) {
  if (auto* const method = dynamic_cast<nn::Method*>(&model))
    return self_supervised_learner(options, *method, replicas);
  return supervised_learner(options, model, replicas);
}

}  // namespace ringtape
