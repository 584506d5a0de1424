#pragma once
#include <functional>
#include <string>
#include <vector>

#include "comm/process_group.h"
#include "nn/module.h"
#include "train/data/dataset.h"

namespace ringtape {

inline constexpr int64_t kEvalBatch = 500;  // images, where nothing is trained

// What a network makes of samples, in their order.
struct Features {
  Tensor x;       // f32 (N, F), on the device of the network
  Tensor labels;  // i64 (N), there too

  int64_t size() const { return x.dim(0); }
};

using Embedding = std::function<Tensor(const Tensor& images)>;  // (B, H, W, C) -> (B, F)

struct EmbedOptions {
  Device device = {};  // of the network
  int workers = 1;     // that prepare batches
  std::string progress = {};  // what a progress bar is called; empty: none
};

// f of the samples of a data set as they are, not augmented, with `module`, whose function it is, in evaluation mode,
// and without gradients. Each rank of the group computes part_of the samples and all get everything: a collective, in
// which all give the same samples. Throws UsageError for no samples, ShapeError where f gives no (B, F).
Features embed(nn::Module& module, const Embedding& f, const Dataset& data, const std::vector<int64_t>& samples,
               const EmbedOptions& options = {}, comm::ProcessGroup& group = comm::alone());

// This rank's part of them.
std::vector<int64_t> own_part(const std::vector<int64_t>& samples, const comm::ProcessGroup& group);

}  // namespace ringtape
