#pragma once
#include <memory>
#include <string>
#include <vector>

#include "comm/process_group.h"
#include "nn/data_parallel.h"
#include "train/data/loader.h"
#include "train/evaluation/snapshot.h"
#include "train/loop/objective.h"
#include "train/run/metrics_log.h"
#include "train/settings/options.h"
#include "train/weights/weights.h"

namespace ringtape {

struct Task;

// What a run trains and how the result is judged: a network that learns labels, or a self-supervised method whose
// features are evaluated. Everything that differs between the two is in the subclasses.
class Learner {
 public:
  virtual ~Learner() = default;

  virtual std::string title() const = 0;    // "resnet18"; "SimCLR(temperature 0.5) of resnet18"
  virtual nn::Module& network() const = 0;  // the network of --model; for a method, its backbone

  virtual void check(const Holdout& split) const = 0;  // throws UsageError if the run cannot be judged with this split
  virtual void distribute(comm::ProcessGroup& /*group*/) {}     // from now on, a batch is the samples of all ranks
  virtual LoaderConfig loading(LoaderConfig config) const = 0;  // adds the augmentation or the views
  // Prefix of the parameters that use the peak learning rate throughout ("prediction."); empty: none.
  virtual std::string fixed_lr() const { return ""; }

  virtual void begin_step(const nn::Moment&) {}
  virtual Objective objective() const = 0;
  virtual bool counts_right() const = 0;  // whether steps return logits, so that accuracy is known
  // The loss when outputs do not depend on the image, for n images per rank; none if it has no fixed value.
  virtual std::optional<double> collapsed_loss(int64_t /*n*/) const { return {}; }

  virtual Tensor classify(const Tensor& x) const = 0;  // images -> logits; for a method, those of its probe

  // Whether epoch `epoch` (from 1) is followed by judge(). The top-1 accuracy of the first metrics that judge() returns
  // selects the best epoch.
  virtual bool judges_after(int64_t epoch, const Holdout& split) const = 0;
  // `snapshot` (null: none; the same on all ranks) gets what is seen meanwhile; its epoch is set.
  virtual std::vector<Metrics> judge(const Task& task, const Holdout& split, bool progress, comm::ProcessGroup& group,
                                     Snapshot* snapshot) const = 0;
  // The metrics after the last epoch: the test; none for a method.
  virtual std::vector<Metrics> test(const Task& task, bool progress, comm::ProcessGroup& group,
                                    Snapshot* snapshot) const = 0;
  virtual const char* judged_split() const = 0;  // of the first metrics of judge()
  virtual const char* final_split() const = 0;   // its last metrics are the result of the run
  // Adds entries to the summary of a run, from all metrics that it reported.
  virtual void describe(Json& /*summary*/, const Task& /*task*/, const std::vector<Metrics>& /*all*/) const {}

  // The weights to export (for a method, those of its backbone), and whether they are a backbone without a last layer.
  virtual std::vector<NamedTensor> exported(const std::vector<NamedTensor>& weights) const = 0;
  virtual bool exports_backbone() const = 0;
};

// The learner for `model`: self-supervised if it is an nn::Method, else supervised. With `replicas` (not null), the
// replicas compute its outputs. All arguments must outlive the learner.
std::unique_ptr<Learner> make_learner(const TrainOptions& options, nn::Module& model,
                                      nn::DataParallel* replicas = nullptr);
std::unique_ptr<Learner> supervised_learner(const TrainOptions& options, nn::Module& model, nn::DataParallel* replicas);
std::unique_ptr<Learner> self_supervised_learner(const TrainOptions& options, nn::Method& method,
                                                 nn::DataParallel* replicas);

}  // namespace ringtape
