#pragma once
#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "comm/parallel/sharded_buffers.h"
#include "nn/module.h"
#include "train/data/dataset.h"

namespace ringtape {

inline constexpr int64_t kEvalBatch = 500;  // images per batch in evaluation, at most
// Of images (H, W, C): fewer of more than 64 x 64 x 3, so that a batch has no more elements than kEvalBatch of those.
inline int64_t eval_batch(const Shape& image) {
  constexpr int64_t kElements = kEvalBatch * 64 * 64 * 3;
  return std::clamp<int64_t>(kElements / std::max<int64_t>(image.size(), 1), 1, kEvalBatch);
}

// The features of samples, in the order of the samples.
struct Features {
  Tensor x;       // f32 (N, F), on the network's device
  Tensor labels;  // i64 (N), on the same device

  int64_t size() const { return x.dim(0); }
};

// (B, H, W, C) -> (B, F). It is prepared for inference where that is possible (autograd/prepared.h).
using Embedding = std::function<Tensor(const Tensor& images)>;

struct EmbedOptions {
  Device device = {};                       // the network's device
  int workers = 1;                          // threads that prepare batches
  std::string progress = {};                // title of a progress bar; empty: none
  comm::ShardedBuffers* weights = nullptr;  // of the network, if all ranks gather them; null: not so
  bool (*interrupted)() = nullptr;          // as of SharedPasses
};

// Applies f to samples of a data set, without augmentation or gradients. `module`, which f uses, is in evaluation mode
// meanwhile. Each rank of the group computes part_of the samples and all get the whole result: a collective, in which
// all ranks pass the same samples. Throws UsageError for no samples, ShapeError if the result of f is not (B, F).
Features embed(nn::Module& module, const Embedding& f, const Dataset& data, const std::vector<int64_t>& samples,
               const EmbedOptions& options = {}, comm::ProcessGroup& group = comm::alone());

// Only this rank's part of them; undefined tensors if it has none. All the same a collective.
Features embed_own(nn::Module& module, const Embedding& f, const Dataset& data, const std::vector<int64_t>& samples,
                   const EmbedOptions& options, comm::ProcessGroup& group);

// This rank's part of the samples.
std::vector<int64_t> own_part(const std::vector<int64_t>& samples, const comm::ProcessGroup& group);

// Passes over the batches of own parts of n samples, of which some ranks may have one more than others, by a network
// whose weights all ranks gather: call begin(i) before batch i of `batch` samples, and end() after the last one.
class SharedPasses {
 public:
  // `interrupted`: whether this rank is to end (null: it is not asked; the same on all ranks).
  SharedPasses(int64_t n, int64_t batch, comm::ProcessGroup& group, comm::ShardedBuffers* weights,
               bool (*interrupted)() = nullptr);
  bool begin(int64_t batch);  // false: the rest is left out
  void end();                 // throws Interrupted on all ranks if one has left out anything

  struct Interrupted : Error {
    explicit Interrupted(int64_t ranks) : Error("a pass was interrupted"), ranks(ranks) {}
    int64_t ranks;  // that are to end
  };

 private:
  comm::ProcessGroup& group_;
  comm::ShardedBuffers* weights_;
  bool (*interrupted_)();
  bool cut_ = false;
  int64_t own_, least_, most_;  // batches
};

}  // namespace ringtape
