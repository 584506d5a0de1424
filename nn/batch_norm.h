#pragma once
#include "autograd/create.h"
#include "nn/mode_guard.h"

namespace ringtape::comm {
class ProcessGroup;
}

namespace ringtape::nn {

// Batch normalisation of x (..., C) over all axes except the last: for rows, and for images in NHWC. Names, initial
// values and updates are those of PyTorch's BatchNorm1d and BatchNorm2d. In training it normalises by the batch and
// updates running statistics; in evaluation it normalises by those.
class BatchNorm : public Module {
 public:
  struct Options {
    double momentum = 0.1;  // weight of a batch in the running statistics
    double eps = 1e-5;
    bool affine = true;  // whether weight and bias are trained; else they are 1 and 0
    bool scale = true;   // if affine: whether the weight is trained, too
  };
  explicit BatchNorm(int64_t channels) : BatchNorm(channels, Options{}) {}
  BatchNorm(int64_t channels, Options options) : weight(ones({channels})), bias(zeros({channels})), options_(options) {
    if (options.affine) bias = leaf(bias);
    if (options.affine && options.scale) weight = leaf(weight);
    running_ = {zeros({channels}), ones({channels}), zeros({}, DType::i64)};
  }
  Tensor forward(const Tensor& x) override { return forward(x, Activation::none); }
  // f(normalised + residual), in one pass over memory.
  Tensor forward(const Tensor& x, Activation f, const Tensor& residual = {});
  using Module::operator();
  Tensor operator()(const Tensor& x, Activation f, const Tensor& residual = {}) {
    return seen(forward(x, f, residual));
  }
  // Whether forward() normalises by the statistics of its whole batch alone; then an op that convolves and normalises
  // takes after(weight of the convolution) and options().
  bool by_own_batch() const { return training() && !frozen_ && (averaged_ >= 0 || (!group_ && parts_ == 1)); }
  ConvNorm after(const Tensor& convolution);
  BatchNormOptions options() const;
  void visit(Visitor& v) override {
    v.tensor("weight", weight, options_.affine && options_.scale);
    v.tensor("bias", bias, options_.affine);
    v.buffer("running_mean", running_.mean);
    v.buffer("running_var", running_.var);
    v.buffer("num_batches_tracked", running_.batches);
  }
  std::string str() const override { return concat("BatchNorm(", weight.size(), ")"); }
  const RunningStatistics& running() const { return running_; }
  void freeze() { frozen_ = true; }  // from now on training is as evaluation

  // Uses the statistics of all ranks of the group from now on (comm/parallel/sync_batch_norm.h); null: of this rank
  // only.
  void synchronize(comm::ProcessGroup* group) { group_ = group; }
  // Normalises a batch in `parts` equal parts of the first axis from now on, each by its own statistics, as on that
  // many devices. Running statistics take the mean over the parts; lightly's SplitBatchNorm keeps them apart and takes
  // that mean in evaluation. In training forward() throws ShapeError for a batch that cannot be divided. A synchronised
  // layer is not split.
  void split(int64_t parts);
  // In training the running statistics become the mean of those of `batches` batches so far and the next one, which
  // this rank has alone and in one part, whatever synchronize() and split() say; -1 (at first): they move by momentum.
  void average(int64_t batches) { averaged_ = batches; }

  Tensor weight, bias;

 private:
  friend std::vector<Tensor*> running_statistics(Module& module);
  RunningStatistics running_;
  Options options_;
  comm::ProcessGroup* group_ = nullptr;
  int64_t parts_ = 1, averaged_ = -1;
  bool frozen_ = false;
};

// The same for every BatchNorm in `module`, including itself; returns their number.
int synchronize_batch_norm(Module& module, comm::ProcessGroup* group);
int split_batch_norm(Module& module, int64_t parts);
std::vector<Tensor*> running_statistics(Module& module);  // mean, variance and number of batches of each of them

// While it lives, `module` evaluates, but each BatchNorm normalises by its batch, and its running statistics become the
// mean of those of the batches, as by PyTorch's update_bn; layers that see none keep theirs, and the number of batches
// goes on. Call begin_batch() before each. Then the module has its mode again.
class BatchStatistics {
 public:
  explicit BatchStatistics(Module& module);
  ~BatchStatistics();
  BatchStatistics(const BatchStatistics&) = delete;
  BatchStatistics& operator=(const BatchStatistics&) = delete;
  void begin_batch();

 private:
  Module& module_;
  ModeGuard mode_;
  int64_t batches_ = 0;
};

}  // namespace ringtape::nn
