#include <algorithm>

#include "autograd/create.h"
#include "autograd/ops.h"
#include "train/loop/learner.h"

namespace ringtape {

Objective cross_entropy_of(nn::Module& model, nn::DataParallel* replicas, double label_smoothing,
                           const std::vector<double>& weights) {
  const Tensor all = weights.empty() ? Tensor() : from_host(weights, {int64_t(weights.size())});
  return [&model, replicas, label_smoothing, all, there = Tensor()](const Tensors& images,
                                                                    const Labels& labels) mutable -> Outcome {
    const Tensor logits = replicas ? (*replicas)(images[0]) : model(images[0]);
    if (all.defined() && !there.defined())  // once, since a recorded step cannot send them
      there = cast(to(all, logits.device()), logits.dtype() == DType::f64 ? DType::f64 : DType::f32);
    CrossEntropyOptions o{.label_smoothing = label_smoothing, .weight = there};
    const bool scaled = all.defined() && labels.scale.defined();
    if (scaled) o.reduction = LossReduction::sum;
    Tensor loss = cross_entropy(logits, labels.y, o);
    if (labels.other.defined())
      loss = loss * labels.share + cross_entropy(logits, labels.other, o) * (1 - labels.share);
    if (scaled) loss = loss * cast(labels.scale, loss.dtype()) / double(std::max<int64_t>(labels.size(), 1));
    return {.loss = loss, .auxiliary_loss = {}, .logits = logits.detach(), .spread = {}};
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
    config.changes = options_.changes;
    config.class_weights = options_.class_weights;
    return config;
  }
  Objective objective() const override {
    return cross_entropy_of(*task_.model, task_.replicas.get(), options_.label_smoothing, options_.class_weights);
  }
  std::vector<Metrics> judge(const EvalOptions& options, Snapshot* snapshot) const override {
    EvalOptions plain = options;
    plain.copies = "none";
    return {evaluate(task_, task_.data.validation(), split.val, "val", plain, nullptr, snapshot)};
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
