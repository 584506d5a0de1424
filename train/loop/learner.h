#pragma once
#include <memory>
#include <string>
#include <vector>

#include "comm/process_group.h"
#include "nn/data_parallel.h"
#include "train/data/loader.h"
#include "train/loop/objective.h"
#include "train/run/metrics_log.h"
#include "train/settings/options.h"
#include "train/weights/weights.h"

namespace ringtape {

struct Task;

// What a training trains, and how the result is judged: a network that learns labels, or a self-supervised method whose
// features are compared. All that the two do differently is here.
class Learner {
 public:
  virtual ~Learner() = default;

  virtual std::string title() const = 0;   // "resnet18"; "SimCLR(temperature 0.5) of resnet18"
  virtual nn::Module& network() const = 0;  // what --model names: of a method its backbone

  virtual void check(const Holdout& split) const = 0;          // throws UsageError if they leave nothing to judge by
  virtual void distribute(comm::ProcessGroup& /*group*/) {}   // from now on a batch is what all of its ranks have
  virtual LoaderConfig loading(LoaderConfig config) const = 0;  // how batches are made, apart from size, seed and ranks
  // The child whose parameters learn at the highest rate throughout, "prediction."; empty: none.
  virtual std::string fixed_lr() const { return ""; }

  virtual void begin_step(const nn::Moment&) {}
  virtual Objective objective() const = 0;
  virtual bool counts_right() const = 0;  // whether a step says how many of its samples it classified
  // The loss of outputs that do not depend on the image, for n images a rank, if there is such a loss.
  virtual std::optional<double> collapsed_loss(int64_t /*n*/) const { return {}; }

  virtual Tensor classify(const Tensor& x) const = 0;  // logits of images, in evaluation mode; of a method its probe's

  // Whether a judgement follows this epoch, counted from 1; and what it says: the first figures choose the best epoch.
  virtual bool judges_after(int64_t epoch, const Holdout& split) const = 0;
  virtual std::vector<Metrics> judge(const Task& task, const Holdout& split, bool progress,
                                     comm::ProcessGroup& group) const = 0;
  // What is left to say after the last epoch.
  virtual std::vector<Metrics> test(const Task& task, bool progress, comm::ProcessGroup& group) const = 0;
  virtual const char* final_split() const = 0;  // whose last figures are those of the whole training
  // What the summary of a run says besides, of all figures that it reported.
  virtual void describe(Json& /*summary*/, const Task& /*task*/, const std::vector<Metrics>& /*all*/) const {}

  // Of the weights of the model those that others take, and whether these lack a last layer.
  virtual std::vector<NamedTensor> exported(const std::vector<NamedTensor>& weights) const = 0;
  virtual bool exports_backbone() const = 0;
};

// One for the model that these options ask for; all outlive it. With replicas of the model (or null), they make its
// outputs.
std::unique_ptr<Learner> make_learner(const TrainOptions& options, nn::Module& model,
                                      nn::DataParallel* replicas = nullptr);
std::unique_ptr<Learner> supervised_learner(const TrainOptions& options, nn::Module& model, nn::DataParallel* replicas);
std::unique_ptr<Learner> self_supervised_learner(const TrainOptions& options, nn::Method& method,
                                                 nn::DataParallel* replicas);

}  // namespace ringtape
