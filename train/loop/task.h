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

// What is known about a network before its data are read: it is resumed, or its weights come from a file.
struct Beginning {
  TrainedOn data = {};
  // Throws if the weights belong to another network; called before the network is created.
  std::function<void(const ModelSpec&)> check = {};
  bool leads = true;                   // whether this process prints messages and shows progress
  std::function<void()> reading = {};  // called before images are read or generated, if that takes time
  bool train = true, test = true;      // which images are needed; see DataRequest
  std::function<Splits(const DataRequest&)> load = {};  // in place of the data set's own; null: that
};

// The data set and the model (or self-supervised method) of the options, on their device. The constructor also sets the
// number of threads and the seed. Throws for every error in the options or the files; nothing has been written by then.
struct Task {
  // `ranks`: number of ranks of the run.
  explicit Task(const TrainOptions& wanted, int ranks = 1, const Beginning& beginning = {});
  Task(const Task&) = delete;
  Task& operator=(const Task&) = delete;

  TrainOptions options;  // resolved
  Device device;
  Splits data;
  ModelSpec spec;
  LastLayer last_layer;  // the last layer in the file options.weights, if given
  std::unique_ptr<nn::Module> model;
  std::unique_ptr<nn::DataParallel> replicas;  // for dp and ddp2; null otherwise
  std::unique_ptr<Learner> learner;            // trains `model`

  comm::Devices devices() const { return replicas ? replicas->devices() : comm::Devices{device}; }
};

// Metadata for the weights' file: the settings, and what the weights were trained on.
std::map<std::string, std::string> weights_metadata(const Task& task);

// Loss and accuracy of the model on samples of a data set, in evaluation mode. Batches have at most 500 samples;
// `outputs` gets the logits of each batch, on cpu:0. The ranks of a group share the samples, and all get the metrics of
// all samples. `snapshot` (null: none; the same on all ranks) gets the predictions.
Metrics evaluate(const Task& task, const Dataset& data, std::vector<int64_t> samples, const std::string& split,
                 bool progress = false, Tensors* outputs = nullptr, comm::ProcessGroup& group = comm::alone(),
                 Snapshot* snapshot = nullptr);

// kNN accuracy of the features of a method's backbone on the test set, with the training samples `bank` as the bank:
// split "knn". Otherwise like evaluate(); `snapshot` gets what shows the features.
Metrics evaluate_features(const Task& task, const std::vector<int64_t>& bank, bool progress = false,
                          comm::ProcessGroup& group = comm::alone(), Snapshot* snapshot = nullptr);

// Metrics of a pass over a split that took `seconds`, from the tallies of all ranks: a collective.
Metrics epoch_metrics(comm::ProcessGroup& group, const Tally& own, const std::string& split, double seconds,
                      const Task& task);

}  // namespace ringtape
