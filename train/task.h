#pragma once
#include <functional>
#include <memory>

#include "comm/process_group.h"
#include "nn/data_parallel.h"
#include "train/methods.h"
#include "train/metrics.h"
#include "train/run/metrics_log.h"
#include "train/trained_on.h"
#include "train/weights.h"

namespace ringtape {

// What is known of a network before its data are read: of one whose training goes on, or whose weights are there.
struct Beginning {
  TrainedOn data = {};
  std::function<void(const ModelSpec&)> check = {};  // throws if the weights are of another network; called before that is made
  bool leads = true;                                 // whether this process says and shows what it does
  std::function<void()> reading = {};                // called before images are read or made, where that takes a while
};

// Data set and model, or self-supervised method, that the options ask for, on their device; set_threads and the seed are applied. Throws
// for whatever is wrong with the options or the files, before anything has been written.
struct Task {
  explicit Task(const TrainOptions& wanted, int ranks = 1, const Beginning& beginning = {});  // of a training by so many ranks

  TrainOptions options;  // resolved
  Device device;
  Splits data;
  ModelSpec spec;
  LastLayer last_layer;  // of the file options.weights, where there is one
  std::unique_ptr<nn::Module> model;
  nn::Method* method = nullptr;                // the model, if it is one
  std::unique_ptr<nn::DataParallel> replicas;  // of dp and ddp2; null otherwise

  // Logits; of a method those of its probe.
  Tensor forward(const Tensor& x) const { return method ? method->classify(x) : replicas ? (*replicas)(x) : (*model)(x); }
  comm::Devices devices() const { return replicas ? replicas->devices() : comm::Devices{device}; }
};

// What its weights say of themselves: the settings, and what it was trained on.
std::map<std::string, std::string> weights_metadata(const Task& task);

// Loss and accuracy of the model on samples of a data set, in evaluation mode. Batches of 500 at most; `outputs` gets the
// logits of each, on cpu:0. The ranks of a group share the samples, and all get the figures of all of them.
Metrics evaluate(const Task& task, const Dataset& data, std::vector<int64_t> samples, const std::string& split, bool progress = false,
                 Tensors* outputs = nullptr, comm::ProcessGroup* group = nullptr);

// What kNN makes of the features that a method's backbone has for the test set, with those of these training samples as its bank: split
// "knn". Otherwise as evaluate.
Metrics evaluate_features(const Task& task, const std::vector<int64_t>& bank, bool progress = false, comm::ProcessGroup* group = nullptr);

// Figures of a pass over a split that has taken so many seconds, of all ranks' tallies together: a collective.
Metrics figures(comm::ProcessGroup* group, const Tally& own, const std::string& split, double seconds, const Task& task);

}  // namespace ringtape
