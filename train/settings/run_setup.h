#pragma once
#include <functional>
#include <memory>

#include "train/loop/trainer.h"
#include "train/settings/options.h"
#include "train/weights/trained_on.h"

// From settings to what they describe: images and network, then a learner, a step, a trainer. Each component gets its
// own settings; nothing below this folder knows all of them.
namespace ringtape {

// What is known about a network before its data are read: it is resumed, or its weights come from a file.
struct Beginning {
  TrainedOn data = {};
  // Throws if the weights belong to another network; called before the network is created.
  std::function<void(const ModelSpec&)> check = {};
  bool leads = true;                   // whether this process prints messages and shows progress
  std::function<void()> reading = {};  // called before images are read or generated, if that takes time
  bool train = true, test = true;      // which images are needed; see DataRequest
  bool weights = true;                 // whether initial weights are read: not if a checkpoint has later ones
  bool labels = true;                  // whether images without labels are refused, unless none are learnt
  std::function<Splits(const DataRequest&)> load = {};  // in place of the data set's own; null: that
};

// The task that settings describe. The constructor also sets the number of threads, the arithmetic and the seed. Throws
// for every error in the settings or the files; nothing has been written by then.
struct RunSetup : Task {
  explicit RunSetup(TrainOptions resolved, const Beginning& beginning = {});  // of resolve()
  RunSetup(const RunSetup&) = delete;
  RunSetup& operator=(const RunSetup&) = delete;

  TrainOptions options;  // with what the data decide
};

EvalOptions eval_options(const TrainOptions& options, comm::ProcessGroup& group = comm::alone());
// The task must outlive the learner and the step. `ranks`: that share a batch.
std::unique_ptr<Learner> make_learner(const TrainOptions& options, const Task& task, const Holdout& split, int ranks);
// The task must know the group already (Task::distribute). `lr`: the peak.
std::unique_ptr<Step> make_step(const TrainOptions& options, const Task& task, const Learner& learner, double lr,
                                comm::ProcessGroup& group);

// The parts of a training of the setup's task on all ranks of a group; both must outlive it. `membership`: whose
// generation the group is; null: the ranks stay. Throws UsageError for a batch larger than the data set or a split that
// cannot judge the run, CommError if ranks differ in settings, data or model.
Training make_training(RunSetup& setup, comm::ProcessGroup& group = comm::alone(),
                       const comm::Membership* membership = nullptr);
Trainer make_trainer(RunSetup& setup, comm::ProcessGroup& group = comm::alone(),
                     const comm::Membership* membership = nullptr);

}  // namespace ringtape
