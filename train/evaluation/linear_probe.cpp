#include "train/evaluation/linear_probe.h"

#include <algorithm>

#include "autograd/create.h"
#include "autograd/ops.h"
#include "autograd/tape.h"
#include "core/random.h"
#include "kernels/copy.h"
#include "nn/linear.h"
#include "train/optim/schedule.h"
#include "train/optim/sgd.h"

namespace ringtape {
namespace {

constexpr double kEps = 1e-6;  // added to the variance: a constant feature stays near 0

struct Standard {
  Tensor mean, deviation;  // (1, F)
  explicit Standard(const Tensor& x)
      : mean(ringtape::mean(x, {0}, true)), deviation(sqrt(var(x, {0}, true, 0) + kEps)) {}
  Tensor operator()(const Tensor& x) const { return (x - mean) / deviation; }
};

void train_layer(nn::Linear& layer, const Tensor& x, const Tensor& labels, const LinearProbe& probe) {
  FlatParameters parameters(layer);
  Sgd sgd(parameters, {.momentum = 0.9});
  const int64_t n = x.dim(0), steps = (n + probe.batch_size - 1) / probe.batch_size;
  const Schedule schedule({.course = Selection(schedules(), "cosine")}, probe.lr, steps, probe.epochs);
  for (int64_t epoch = 0; epoch < probe.epochs; ++epoch) {
    const Tensor order = from_host(permutation(n, probe.seed, Stream::shuffle, uint64_t(epoch)), {n}, x.device());
    for (int64_t step = 0; step < steps; ++step) {
      const Tensor rows = slice(order, 0, step * probe.batch_size, std::min((step + 1) * probe.batch_size, n));
      sgd.zero_grad();
      backward(cross_entropy(layer(index_select(x, 0, rows)), index_select(labels, 0, rows)));
      sgd.step(schedule.at(epoch * steps + step));
    }
  }
}

}  // namespace

Tally linear_probe(const Features& train, const Features& test, int64_t classes, const LinearProbe& probe) {
  RT_CHECK_AS(UsageError, train.size() > 0 && test.size() > 0, "linear probe: ", train.size(), " training and ",
              test.size(), " test samples; it needs some of both");
  nn::Linear layer(train.x.dim(1), classes);
  if (train.x.device() != Device{}) nn::move_to(layer, train.x.device());
  for (const Tensor& p : {layer.weight, layer.bias}) copy(p, zeros(p.shape(), p.dtype(), p.device()));
  const NoGrad no_grad;
  const Standard standard(train.x);
  const Tensor x = standard(train.x), y = standard(test.x);
  {
    const EnableGrad enable_grad;
    train_layer(layer, x, train.labels, probe);
  }
  const Tensor logits = layer(y);
  Tally tally;
  tally.add(cross_entropy(logits, test.labels), logits, test.labels);
  tally.finish();
  return tally;
}

}  // namespace ringtape
