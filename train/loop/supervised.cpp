#include "autograd/ops.h"
#include "train/loop/learner.h"

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
  Supervised(const Task& task, const Holdout& samples, const SupervisedOptions& options)
      : Learner({.title = task.model_name,
                 .judged_split = "val",
                 .final_split = "test",
                 .judged_every = samples.val.empty() ? 0 : 1,
                 .judged_at_end = !samples.val.empty(),
                 .counts_right = true,
                 .exports_backbone = false},
                samples),
        task_(task), options_(options) {}

  LoaderConfig loading(LoaderConfig config) const override {
    config.augmentation = options_.augmentation;
    return config;
  }
  Objective objective() const override {
    return cross_entropy_of(*task_.model, task_.replicas.get(), options_.label_smoothing);
  }
  std::vector<Metrics> judge(const EvalOptions& options, Snapshot* snapshot) const override {
    return {evaluate(task_, task_.data.validation(), split.val, "val", options, nullptr, snapshot)};
  }
  std::vector<Metrics> test(const EvalOptions& options, Snapshot* snapshot) const override {
    return {evaluate(task_, task_.data.test, all_samples(task_.data.test), "test", options, nullptr, snapshot)};
  }

 private:
  const Task& task_;
  const SupervisedOptions options_;
};

}  // namespace

bool Learner::judges_after(int64_t epoch, int64_t epochs) const {
  return (facts.judged_at_end && epoch == epochs) || (facts.judged_every > 0 && epoch % facts.judged_every == 0);
}

std::vector<FileTensor> Learner::exported(std::vector<FileTensor> weights) const {
  return facts.exports_backbone ? below("backbone", std::move(weights)) : weights;
}

std::unique_ptr<Learner> supervised_learner(const Task& task, const Holdout& split, const SupervisedOptions& options) {
  return std::make_unique<Supervised>(task, split, options);
}

}  // namespace ringtape
