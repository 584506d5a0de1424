#pragma once
#include <string>
#include <vector>

#include "comm/parallel/sharded_buffers.h"
#include "train/evaluation/evaluation.h"
#include "train/evaluation/metrics.h"
#include "train/evaluation/snapshot.h"
#include "train/loop/task.h"
#include "train/run/metrics.h"

namespace ringtape {

// How a pass over images without training runs.
struct EvalOptions {
  DType precision = DType::f32;                // that ops convert their operands to
  int workers = 1;                             // threads that prepare batches
  int64_t limit_batches = 0;                   // of kEvalBatch images; 0: all images
  std::string copies = "none";                 // of each image, over which outputs are averaged; of tests only
  bool progress = false;                       // whether to show a bar
  comm::ShardedBuffers* weights = nullptr;     // as EmbedOptions::weights
  bool (*interrupted)() = nullptr;             // as of SharedPasses
  comm::ProcessGroup* group = &comm::alone();  // whose ranks share the images; all get the metrics of all images
  int64_t shares = 0;  // in so many fixed parts, which ranks compute one after another; 0: in one for each rank
};

// Loss and accuracy of the network on samples of a data set, in evaluation mode. Batches have at most eval_batch()
// samples; `outputs` gets the logits of each batch, on cpu:0. `snapshot` (null: none; the same on all ranks) gets the
// predictions.
Metrics evaluate(const Task& task, const Dataset& data, std::vector<int64_t> samples, const std::string& split,
                 const EvalOptions& options, Tensors* outputs = nullptr, Snapshot* snapshot = nullptr);

// kNN accuracy of the features of a method's backbone on the test set, with the training samples `bank` as the bank:
// split "knn". Otherwise like evaluate(); `snapshot` gets what shows the features.
Metrics evaluate_features(const Task& task, const std::vector<int64_t>& bank, const Knn& knn,
                          const EvalOptions& options, Snapshot* snapshot = nullptr);

// Metrics of a pass over a split that took `seconds`, from the tally over all ranks: a collective.
Metrics epoch_metrics(comm::ProcessGroup& group, const Tally& tally, const std::string& split, double seconds,
                      const comm::Devices& devices);

}  // namespace ringtape
