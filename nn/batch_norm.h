#pragma once
#include "autograd/create.h"
#include "nn/module.h"

namespace ringtape::comm {
class ProcessGroup;
}

namespace ringtape::nn {

// Batch normalisation of x (..., C) over all axes but the last: of rows, and of images in NHWC. Names, initial values and updates as
// PyTorch's BatchNorm1d and BatchNorm2d. While training it normalises by the batch and keeps running statistics, by which it
// normalises in evaluation.
class BatchNorm : public Module {
 public:
  struct Options {
    double momentum = 0.1;  // part of a batch in the running statistics
    double eps = 1e-5;
    bool affine = true;  // whether weight and bias are trained; else they stay 1 and 0
  };
  explicit BatchNorm(int64_t channels) : BatchNorm(channels, Options{}) {}
  BatchNorm(int64_t channels, Options options)
      : weight(ones({channels})), bias(zeros({channels})), options_(options) {
    if (options.affine) weight = leaf(weight), bias = leaf(bias);
    running_ = {zeros({channels}), ones({channels}), zeros({}, DType::i64)};
  }
  Tensor forward(const Tensor& x) override { return forward(x, Activation::none); }
  // f(normalised + residual), in one pass over memory.
  Tensor forward(const Tensor& x, Activation f, const Tensor& residual = {});
  using Module::operator();
  Tensor operator()(const Tensor& x, Activation f, const Tensor& residual = {}) { return seen(forward(x, f, residual)); }
  void visit(Visitor& v) override {
    const auto see = options_.affine ? &Visitor::parameter : &Visitor::buffer;
    (v.*see)("weight", weight);
    (v.*see)("bias", bias);
    v.buffer("running_mean", running_.mean);
    v.buffer("running_var", running_.var);
    v.buffer("num_batches_tracked", running_.batches);
  }
  std::string str() const override { return concat("BatchNorm(", weight.size(), ")"); }
  const RunningStatistics& running() const { return running_; }

  // From now on a batch is what all ranks of the group have (comm/sync_batch_norm.h); null: what this one has.
  void synchronize(comm::ProcessGroup* group) { group_ = group; }
  // From now on a batch is normalised in so many equal parts along the first axis, each by its own statistics, as if on as many devices,
  // and the mean of their statistics kept: what lightly's SplitBatchNorm, which keeps them apart, takes in evaluation. While training,
  // forward() throws ShapeError for a batch that cannot be cut so. A synchronised layer is not split.
  void split(int64_t parts);

  Tensor weight, bias;

 private:
  RunningStatistics running_;
  Options options_;
  comm::ProcessGroup* group_ = nullptr;
  int64_t parts_ = 1;
};

// The same for every BatchNorm in `module`, itself included; returns how many there are.
int synchronize_batch_norm(Module& module, comm::ProcessGroup* group);
int split_batch_norm(Module& module, int64_t parts);

}  // namespace ringtape::nn
