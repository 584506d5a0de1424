#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "train/data/loader.h"
#include "train/loop/evaluate.h"
#include "train/loop/objective.h"

namespace ringtape {

// What a run trains and how the result is judged: a network that learns labels, or a self-supervised method whose
// features are evaluated. Everything that differs between the two is here.
class Learner {
 public:
  struct Facts {
    std::string title;          // "resnet18"; "SimCLR(temperature 0.5) of resnet18"
    std::string judged_split;   // of the first metrics of judge(): they select the best epoch
    std::string final_split;    // its last metrics are the result of the run
    int64_t judged_every;       // epochs, after which judge() follows; 0: not because of that
    bool judged_at_end;         // whether it follows the last epoch
    bool counts_right;          // whether steps return logits, so that accuracy is known
    bool exports_backbone;      // the weights to export: a backbone without a last layer
    std::string fixed_lr = {};  // prefix of the parameters that use the peak learning rate throughout; empty: none
    // The loss when outputs do not depend on the image; none if it has no fixed value.
    std::optional<double> collapsed_loss = {};
  };
  Learner(Facts known, const Holdout& samples) : facts(std::move(known)), split(samples) {}
  virtual ~Learner() = default;

  const Facts facts;
  const Holdout split;                                                      // of the task's training images
  bool judges_after(int64_t epoch, int64_t epochs) const;                   // epochs count from 1
  std::vector<FileTensor> exported(std::vector<FileTensor> weights) const;  // those to export

  virtual LoaderConfig loading(LoaderConfig config) const = 0;  // adds the augmentation or the views
  virtual void begin_step(const nn::Moment&) {}
  virtual Objective objective() const = 0;
  // After an epoch, and (for a method: nothing) after the last one. `snapshot` (null: none; the same on all ranks) gets
  // what is seen meanwhile; its epoch is set.
  virtual std::vector<Metrics> judge(const EvalOptions& options, Snapshot* snapshot) const = 0;
  virtual std::vector<Metrics> test(const EvalOptions& options, Snapshot* snapshot) const = 0;
  // Adds entries to the summary of a run, from all metrics that it reported.
  virtual void describe(Json& /*summary*/, const EvalOptions&, const std::vector<Metrics>& /*all*/) const {}
};

// Learning with labels: cross-entropy, judged by a validation set, if there is one. The task must outlive the learner.
struct SupervisedOptions {
  Augmentation augmentation = {};
  double label_smoothing = 0;
  ImageChanges changes = {};
  std::vector<double> class_weights = {};  // see class_weights(); empty: 1 each
};
std::unique_ptr<Learner> supervised_learner(const Task& task, const Holdout& split, const SupervisedOptions& options);

// Learning without labels: the loss of the task's method on random views, judged by kNN on its features.
struct SelfSupervisedOptions {
  std::vector<ViewAugmentation> views;
  Transforms transforms = {};  // of the images whose views a snapshot shows
  EvaluationOptions evaluation = {};
  uint64_t seed = 1;
  int64_t images = 0;  // of a batch, on each rank
};
std::unique_ptr<Learner> self_supervised_learner(const Task& task, const Holdout& split,
                                                 const SelfSupervisedOptions& options);

}  // namespace ringtape
