#include "nn/batch_norm.h"

#include "comm/parallel/sync_batch_norm.h"

namespace ringtape::nn {

ConvNorm BatchNorm::after(const Tensor& convolution) {
  // A 16-bit module uses its parameters in f32 and keeps statistics in f32: 16 bits would lose small updates.
  const DType dtype = weight.dtype() == DType::f64 ? DType::f64 : DType::f32;
  for (Tensor* t : {&running_.mean, &running_.var}) *t = cast(*t, dtype);
  return {convolution, cast(weight, dtype), cast(bias, dtype), running_};
}

BatchNormOptions BatchNorm::options() const {
  return {.training = training() && !frozen_,
          .momentum = averaged_ < 0 ? options_.momentum : 1 / double(averaged_ + 1),
          .eps = options_.eps,
          .parts = group_ || averaged_ >= 0 ? 1 : parts_};
}

Tensor BatchNorm::forward(const Tensor& x, Activation f, const Tensor& residual) {
  const auto [none, w, b, running] = after({});
  if (group_ && averaged_ < 0) return comm::sync_batch_norm(*group_, x, w, b, running, options(), f, residual);
  return batch_norm(x, w, b, running, options(), f, residual);
}

void BatchNorm::split(int64_t parts) {
  RT_CHECK_AS(UsageError, parts >= 1, "batch_norm: a batch cannot be split into ", parts, " parts");
  parts_ = parts;
}

namespace {

template <class F> int for_each_batch_norm(Module& module, const F& f) {
  struct Find : Visitor {
    std::vector<BatchNorm*> found;
    void look(Module& m) {
      if (auto* const layer = dynamic_cast<BatchNorm*>(&m)) found.push_back(layer);
    }
    void on_module(const std::string&, Module& m) override { look(m); }
  } layers;
  layers.look(module);
  module.visit(layers);
  for (BatchNorm* layer : layers.found) f(*layer);
  return int(layers.found.size());
}

}  // namespace

int synchronize_batch_norm(Module& module, comm::ProcessGroup* group) {
  return for_each_batch_norm(module, [group](BatchNorm& layer) { layer.synchronize(group); });
}

int split_batch_norm(Module& module, int64_t parts) {
  return for_each_batch_norm(module, [parts](BatchNorm& layer) { layer.split(parts); });
}

std::vector<Tensor*> running_statistics(Module& module) {
  std::vector<Tensor*> out;
  for_each_batch_norm(module, [&out](BatchNorm& layer) {
    for (Tensor* t : {&layer.running_.mean, &layer.running_.var, &layer.running_.batches}) out.push_back(t);
  });
  return out;
}

BatchStatistics::BatchStatistics(Module& module) : module_(module), mode_(module, false) {
  for_each_batch_norm(module, [](BatchNorm& layer) { layer.train(true); });
}

BatchStatistics::~BatchStatistics() {
  for_each_batch_norm(module_, [](BatchNorm& layer) { layer.average(-1); });
}

void BatchStatistics::begin_batch() {
  for_each_batch_norm(module_, [this](BatchNorm& layer) { layer.average(batches_); });
  ++batches_;
}

}  // namespace ringtape::nn
