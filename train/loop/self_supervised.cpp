#include <fmt/core.h>

#include <algorithm>

#include "autograd/autocast.h"
#include "autograd/ops.h"
#include "nn/loss/spread.h"
#include "train/evaluation/features.h"
#include "train/evaluation/snapshot_parts.h"
#include "train/loop/learner.h"
#include "train/loop/task.h"

// Learning without labels: the loss of a self-supervised method on random views, judged by kNN on its features.
namespace ringtape {

Objective loss_of(nn::Method& method, nn::DataParallel* replicas) {
  return [&method, replicas](const Tensors& views, const Tensor& labels) -> Outcome {
    Tensors outputs = replicas ? nn::outputs_of(*replicas, views) : method.step_outputs(views);
    const Autocast full(DType::f32);
    Outcome out;
    if (method.has_probe()) {
      out.auxiliary_loss = cross_entropy(outputs.back(), labels);
      out.logits = outputs.back().detach();
      outputs.pop_back();
    }
    out.loss = method.loss(outputs);
    out.spread = nn::spread(method.watched(outputs));
    return out;
  };
}

namespace {

class SelfSupervised : public Learner {
 public:
  SelfSupervised(const TrainOptions& options, nn::Method& method, nn::DataParallel* replicas)
      : options_(options), method_(method), replicas_(replicas) {}

  std::string title() const override { return concat(method_.str(), " of ", options_.model.name); }
  nn::Module& network() const override { return method_.backbone(); }

  void check(const Holdout& split) const override {
    const auto images = int64_t(split.train.size());
    const int64_t k = options_.evaluation.knn.k, bank = options_.evaluation.bank;
    RT_CHECK_AS(UsageError, k <= images, "--knn-k ", k, ": more neighbours than the ", images, " training images");
    RT_CHECK_AS(UsageError, bank == 0 || k <= bank, "--knn-k ", k, ": more neighbours than the ", bank,
                " images of --knn-bank");
  }
  void distribute(comm::ProcessGroup& group) override { method_.distribute(group); }
  LoaderConfig loading(LoaderConfig config) const override {
    config.drop_last = true;
    config.views = views_of(options_.views);
    return config;
  }
  std::string fixed_lr() const override { return method_.fixes_prediction_lr() ? "prediction." : ""; }

  void begin_step(const nn::Moment& at) override { method_.begin_step(at); }
  Objective objective() const override { return loss_of(method_, replicas_); }
  bool counts_right() const override { return method_.has_probe(); }
  std::optional<double> collapsed_loss(int64_t n) const override { return method_.collapsed_loss(n); }
  Tensor classify(const Tensor& x) const override { return method_.classify(x); }

  bool judges_after(int64_t epoch, const Holdout&) const override {
    const int64_t every = options_.evaluation.every;
    return epoch == options_.trainer.epochs || (every > 0 && epoch % every == 0);
  }
  std::vector<Metrics> judge(const Task& task, const Holdout& split, bool progress, comm::ProcessGroup& group,
                             Snapshot* snapshot) const override {
    std::vector<int64_t> bank = split.train;  // in random order
    const int64_t limit = options_.evaluation.bank;
    if (limit > 0 && limit < int64_t(bank.size())) bank.resize(size_t(limit));
    std::vector<Metrics> out = {evaluate_features(task, bank, progress, group, snapshot)};
    if (method_.has_probe())
      out.push_back(evaluate(task, task.data.test, all_samples(task.data.test), "probe", progress, nullptr, group));
    if (snapshot && group.rank() == 0) {
      const LoaderConfig config{.seed = uint64_t(options_.execution.seed), .device = task.device};
      add_views(*snapshot, task.data.train, split.train, loading(config), snapshot->epoch - 1);
    }
    return out;
  }
  std::vector<Metrics> test(const Task&, bool, comm::ProcessGroup&, Snapshot*) const override { return {}; }
  const char* judged_split() const override { return "knn"; }
  const char* final_split() const override { return "knn"; }

  // The protocol behind the top-1 accuracy, and the best accuracy of all epochs besides the last one.
  void describe(Json& summary, const Task& task, const std::vector<Metrics>& all) const override {
    double best = 0;
    for (const Metrics& m : all)
      if (m.split == "knn") best = std::max(best, m.top1.value_or(0));
    summary["best_top1"] = best;
    const EvaluationOptions& e = options_.evaluation;
    const bool all_known = e.bank == 0 || e.bank >= task.data.train.size();
    const int64_t limit = options_.trainer.limit_eval_batches;
    summary["protocol"] = fmt::format(
        "kNN, k {}, temperature {:g}, {} training images as they are, {}, after the last epoch; best: of all epochs, "
        "by the test set",
        e.knn.k, e.knn.temperature, all_known ? "all" : fmt::format("{} of the {}", e.bank, task.data.train.size()),
        limit > 0 ? fmt::format("{} test images at most", limit * kEvalBatch) : "the whole test set");
    summary["method"] = options_.method.name;
    for (const Metrics& m : all)
      if (m.split == "probe" && m.top1) summary["probe_top1"] = *m.top1;  // the last one counts
  }

  std::vector<NamedTensor> exported(const std::vector<NamedTensor>& weights) const override {
    return below("backbone", weights);
  }
  bool exports_backbone() const override { return true; }

 private:
  const TrainOptions& options_;
  nn::Method& method_;
  nn::DataParallel* replicas_;
};

}  // namespace

std::unique_ptr<Learner> self_supervised_learner(const TrainOptions& options, nn::Method& method,
                                                 nn::DataParallel* replicas) {
  return std::make_unique<SelfSupervised>(options, method, replicas);
}

}  // namespace ringtape
