#include "nn/ssl/method.h"

#include <mutex>
#include <utility>

#include "autograd/tape.h"

namespace ringtape::nn {

Tensor Method::encode(const Tensor& view) {
  const Tensor features = (*encoder_.backbone)(view);
  if (probe_ && !probed_.defined()) probed_ = features.detach();
  return (*encoder_.projection)(features);
}

Tensors Method::step_outputs(const Tensors& views) {
  probed_ = {};
  Tensors out = outputs(views);
  if (probe_) out.push_back((*probe_)(std::exchange(probed_, {})));
  return out;
}

// Gradients go through one result of replicas alone: outputs that have any lie side by side in it.
Tensors outputs_of(DataParallel& replicas, const Tensors& views) {
  struct Output {
    int64_t width;
    bool packed;
  };
  std::vector<Output> layout;
  std::mutex mutex;
  const Tensors results = replicas.forward(views, [&](Module& replica, const Tensors& rows) {
    Tensors side, apart;
    std::vector<Output> own;
    for (const Tensor& y : dynamic_cast<Method&>(replica).step_outputs(rows)) {
      own.push_back({y.dim(1), requires_grad(y)});
      (own.back().packed ? side : apart).push_back(y);
    }
    apart.insert(apart.begin(), side.empty() ? zeros({rows[0].dim(0), 0}) : concat(side, 1));
    const std::lock_guard lock(mutex);
    layout = own;  // the same of all
    return apart;
  });
  Tensors out;
  int64_t column = 0;
  size_t next = 1;
  for (const Output& y : layout) {
    out.push_back(y.packed ? slice(results[0], 1, column, column + y.width) : results[next++]);
    if (y.packed) column += y.width;
  }
  return out;
}

std::vector<MethodEntry>& methods() {
  static std::vector<MethodEntry> all;
  return all;
}

}  // namespace ringtape::nn
