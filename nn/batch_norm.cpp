#include "nn/batch_norm.h"

#include "autograd/checkpoint.h"
#include "autograd/inplace.h"
#include "comm/sync_batch_norm.h"

namespace ringtape::nn {

Tensor BatchNorm::forward(const Tensor& x, Activation f, const Tensor& residual) {
  // A 16-bit module computes with its parameters in f32, and keeps statistics in it: 16 bits would lose small updates.
  const DType dtype = weight.dtype() == DType::f64 ? DType::f64 : DType::f32;
  for (Tensor* t : {&running_.mean, &running_.var}) *t = cast(*t, dtype);
  const Tensor w = cast(weight, dtype), b = cast(bias, dtype);
  if (group_) return comm::sync_batch_norm(*group_, x, w, b, running_, options(), f, residual);
  if (parts_ > 1 && training()) return forward_split(x, w, b, f, residual);
  return batch_norm(x, w, b, running_, options(), f, residual);
}

// Each part updates a copy of what is kept. The update is linear: the mean of the copies is what the mean of the parts makes of it.
Tensor BatchNorm::forward_split(const Tensor& x, const Tensor& w, const Tensor& b, Activation f, const Tensor& residual) {
  const int64_t rows = x.rank() > 0 ? x.dim(0) : 0, n = rows / parts_, channels = weight.size();
  RT_CHECK_AS(ShapeError, rows % parts_ == 0, "batch_norm: expected a batch of ", parts_, " equal parts, got x ", x.shape());
  const Tensor means({parts_, channels}, w.dtype(), w.device()), vars = empty_like(means), batches = zeros({}, DType::i64, w.device());
  copy_(means, running_.mean), copy_(vars, running_.var);
  Tensors ys;
  for (int64_t i = 0; i < parts_; ++i) {
    const auto part = [&](const Tensor& t) { return t.defined() ? slice(t, 0, i * n, (i + 1) * n) : t; };
    const auto row = [&](const Tensor& t) { return t.window({channels}, {1}, i * channels); };
    ys.push_back(batch_norm(part(x), w, b, {row(means), row(vars), i == 0 ? running_.batches : batches}, options(), f, part(residual)));
  }
  if (!recomputing()) copy_(running_.mean, mean(means, {0})), copy_(running_.var, mean(vars, {0}));
  return ringtape::concat(ys);
}

void BatchNorm::split(int64_t parts) {
  RT_CHECK_AS(UsageError, parts >= 1, "batch_norm: a batch cannot be split into ", parts, " parts");
  parts_ = parts;
}

namespace {

template <class F>
int for_each_batch_norm(Module& module, const F& f) {
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

}  // namespace ringtape::nn
