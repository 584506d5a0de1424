#include <fmt/core.h>

#include <algorithm>

#include "autograd/autocast.h"
#include "autograd/ops.h"
#include "nn/loss/spread.h"
#include "train/evaluation/features.h"
#include "train/evaluation/snapshot_parts.h"
#include "train/io/json.h"
#include "train/loop/learner.h"

namespace ringtape {

Objective loss_of(nn::Method& method, nn::DataParallel* replicas) {
  return [&method, replicas](const Tensors& views, const Labels& labels) -> Outcome {
    const Tensors inputs = method.inputs(views);
    Tensors outputs = replicas ? nn::outputs_of(*replicas, inputs) : method.step_outputs(inputs);
    const Autocast full(DType::f32);
    Outcome out;
    if (method.has_probe()) {
      out.auxiliary_loss = cross_entropy(outputs.back(), labels.y);
      out.logits = outputs.back().detach();
      outputs.pop_back();
    }
    out.loss = method.loss(outputs);
    if (const Tensor watched = method.watched(outputs); !watched.defined() || watched.shape()[0] > 1)
      out.spread = nn::spread(watched);
    return out;
  };
}

namespace {

class SelfSupervised : public Learner {
 public:
  SelfSupervised(const Task& task, nn::Method& method, const Holdout& samples, const SelfSupervisedOptions& options)
      : Learner({.title = concat(method.str(), " of ", task.model_name),
                 .judged_split = "knn",
                 .final_split = "knn",
                 .judged_every = task.judges() ? options.evaluation.every : 0,
                 .judged_at_end = task.judges() != nullptr,
                 .counts_right = method.has_probe(),
                 .exports_backbone = true,
                 .fixed_lr = method.fixes_prediction_lr() ? "prediction." : "",
                 .collapsed_loss = method.collapsed_loss(options.images)},
                samples),
        task_(task), method_(method), options_(options) {}

  LoaderConfig loading(LoaderConfig config) const override {
    config.drop_last = true;
    config.views = options_.views;
    return config;
  }
  void begin_step(const nn::Moment& at) override { method_.begin_step(at); }
  Objective objective() const override { return loss_of(method_, task_.replicas.get()); }

  std::vector<Metrics> judge(const EvalOptions& options, Snapshot* snapshot) const override {
    // In random order.
    std::vector<int64_t> bank =
        task_.tested ? holdout(task_.tested->train.size(), 0, options_.seed).train : split.train;
    const int64_t limit = options_.evaluation.bank;
    if (limit > 0 && limit < int64_t(bank.size())) bank.resize(size_t(limit));
    std::vector<Metrics> out = {evaluate_features(task_, bank, options_.evaluation.knn, options, snapshot)};
    if (method_.has_probe())
      out.push_back(evaluate(task_, task_.data.test, all_samples(task_.data.test), "probe", options));
    const bool alike = !task_.tested || task_.tested->test.image() == task_.data.train.image();
    if (snapshot && alike && options.group->rank() == 0)
      add_views(*snapshot, task_.data.train, split.train,
                loading({.seed = options_.seed, .device = task_.device, .transforms = options_.transforms}),
                snapshot->epoch - 1);
    return out;
  }
  std::vector<Metrics> test(const EvalOptions&, Snapshot*) const override { return {}; }

  // The protocol behind the top-1 accuracy, and the best accuracy of all epochs besides the last one.
  void describe(Json& summary, const EvalOptions& options, const std::vector<Metrics>& all) const override {
    double best = 0;
    for (const Metrics& m : all)
      if (m.split == "knn") best = std::max(best, m.top1.value_or(0));
    summary["best_top1"] = best;
    const EvaluationOptions& e = options_.evaluation;
    const int64_t limit = options.limit_batches, images = task_.judges()->train.size();
    summary["protocol"] = fmt::format(
        "kNN, k {}, temperature {:g}, {} training images as they are, {}, after the last epoch; best: of all epochs, "
        "by the test set",
        e.knn.k, e.knn.temperature,
        e.bank == 0 || e.bank >= images ? "all" : fmt::format("{} of the {}", e.bank, images),
        limit > 0 ? fmt::format("{} test images at most", limit * kEvalBatch) : "the whole test set");
    summary["method"] = task_.method_name;
    for (const Metrics& m : all)
      if (m.split == "probe" && m.top1) summary["probe_top1"] = *m.top1;  // the last one counts
  }

 private:
  const Task& task_;
  nn::Method& method_;
  const SelfSupervisedOptions options_;
};

}  // namespace

std::unique_ptr<Learner> self_supervised_learner(const Task& task, const Holdout& split,
                                                 const SelfSupervisedOptions& options) {
  return std::make_unique<SelfSupervised>(task, *task.method(), split, options);
}

}  // namespace ringtape
