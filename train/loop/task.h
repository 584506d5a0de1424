#pragma once
#include <functional>
#include <memory>

#include "comm/process_group.h"
#include "nn/data_parallel.h"
#include "train/evaluation/metrics.h"
#include "train/loop/learner.h"
#include "train/model/models.h"
#include "train/weights/trained_on.h"

namespace ringtape {

// What is known of a network before its data are read: of one whose training goes on, or whose weights are there.
struct Beginning {
  TrainedOn data = {};
  // Throws if the weights are of another network; called before that is made.
  std::function<void(const ModelSpec&)> check = {};
  bool leads = true;                                 // whether this process says and shows what it does
  std::function<void()> reading = {};                // called before images are read or made, where that takes a while
  bool train = true, test = true;                    // which images are needed; see DataRequest
};

// Data set and model, or self-supervised method, that the options ask for, on their device; set_threads and the seed
// are applied. Throws for whatever is wrong with the options or the files, before anything has been written.
struct Task {
  // Of a training by so many ranks.
  explicit Task(const TrainOptions& wanted, int ranks = 1, const Beginning& beginning = {});
  Task(const Task&) = delete;
  Task& operator=(const Task&) = delete;

  TrainOptions options;  // resolved
  Device device;
  Splits data;
  ModelSpec spec;
  LastLayer last_layer;  // of the file options.weights, where there is one
  std::unique_ptr<nn::Module> model;
  std::unique_ptr<nn::DataParallel> replicas;  // of dp and ddp2; null otherwise
  std::unique_ptr<Learner> learner;            // of the model

  comm::Devices devices() const { return replicas ? replicas->devices() : comm::Devices{device}; }
};

// What its weights say of themselves: the settings, and what it was trained on.
std::map<std::string, std::string> weights_metadata(const Task& task);

// Loss and accuracy of the model on samples of a data set, in evaluation mode. Batches of 500 at most; `outputs` gets
// the logits of each, on cpu:0. The ranks of a group share the samples, and all get the figures of all of them.
Metrics evaluate(const Task& task, const Dataset& data, std::vector<int64_t> samples, const std::string& split,
                 bool progress = false, Tensors* outputs = nullptr, comm::ProcessGroup& group = comm::alone());

// What kNN makes of the features that a method's backbone has for the test set, with those of these training samples as
// its bank: split "knn". Otherwise as evaluate.
Metrics evaluate_features(const Task& task, const std::vector<int64_t>& bank, bool progress = false,
                          comm::ProcessGroup& group = comm::alone());

// Figures of a pass over a split that has taken so many seconds, of all ranks' tallies together: a collective.
Metrics epoch_metrics(comm::ProcessGroup& group, const Tally& own, const std::string& split, double seconds,
                      const Task& task);

}  // namespace ringtape
