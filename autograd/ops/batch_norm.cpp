#include "kernels/batch_norm.h"

#include "autograd/checkpoint.h"
#include "autograd/create.h"
#include "autograd/ops/common.h"
#include "kernels/fill.h"

namespace ringtape {
namespace {

DType statistics_dtype(const Tensor& x) { return x.dtype() == DType::f64 ? DType::f64 : DType::f32; }

void check_channels(const Tensor& x, const Tensor& t, const char* what) {
  const Shape wanted{x.shape()[x.rank() - 1]};
  RT_CHECK_AS(ShapeError, t.defined() && t.shape() == wanted, "batch_norm: expected ", what, " of shape ", wanted, " for x ", x.shape(),
              ", got ", t.defined() ? t.shape().str() : "none");
  RT_CHECK_AS(DTypeError, t.dtype() == statistics_dtype(x), "batch_norm: x and ", what, " of ", x.dtype(), " and ", t.dtype(), "; ", what,
              " is to be ", statistics_dtype(x), ": convert it with cast(x, dtype)");
  RT_CHECK_AS(DeviceError, t.device() == x.device(), "batch_norm: x and ", what, " on ", x.device(), " and ", t.device(),
              "; move one with to(x, device)");
}

void check(const Tensor& x, const Tensor& w, const Tensor& b, const RunningStatistics& running, const BatchNormOptions& options,
           const Tensor& residual) {
  check_float(x, "batch_norm");
  RT_CHECK_AS(ShapeError, x.rank() >= 2, "batch_norm: expected x (..., C) with at least 2 axes, got ", x.shape());
  check_channels(x, w, "w");
  check_channels(x, b, "b");
  if (!options.training || running.mean.defined()) {
    check_channels(x, running.mean, "the running mean");
    check_channels(x, running.var, "the running variance");
  }
  if (residual.defined()) {
    check_same(x, residual, "batch_norm");
    RT_CHECK_AS(ShapeError, residual.shape() == x.shape(), "batch_norm: a residual of shape ", residual.shape(), " for x ", x.shape());
  }
}

// The mean and variance to normalise by.
struct Statistics {
  Tensor mean, var;
  Tensor unbiased = {};   // of a batch: the variance to keep, but for a factor
  double correction = 1;  // that factor
  int64_t count = 0;      // rows of x, if they depend on it
  Tensor total = {};      // rows of the peers' x and of this one: one element. None without peers
};

void check_count(int64_t count, const Tensor& x, const char* where) {
  RT_CHECK_AS(ShapeError, count > 1 || x.shape()[x.rank() - 1] == 0, "batch_norm: expected more than 1 value per channel when training, got x ",
              x.shape(), where);
}

Statistics of_batch(const Tensor& x, int64_t count) {
  check_count(count, x, "");
  const Tensor mean({x.shape()[x.rank() - 1]}, statistics_dtype(x), x.device()), var = empty_like(mean);
  batch_norm_statistics(mean, var, x);
  return {mean, var, var, double(count) / double(count - 1), count};
}

// One message of a fixed size. All merge the same parts in the same order, so that all get the same bits; a sum of moments made by the
// group would lose digits, and make them depend on the algorithm.
Statistics of_all(const Tensor& x, int64_t count, const BatchNormPeers& peers) {
  const int64_t channels = x.shape()[x.rank() - 1];
  const Tensor own({2 * channels + 1}, statistics_dtype(x), x.device());
  const auto part = [&own](int64_t begin, int64_t size) { return own.window({size}, {1}, begin); };
  batch_norm_statistics(part(0, channels), part(channels, channels), x);
  fill(part(2 * channels, 1), double(count));
  const Tensor mean({channels}, own.dtype(), x.device());
  const Statistics s{mean, empty_like(mean), empty_like(mean), 1, count, Tensor({1}, own.dtype(), x.device())};
  batch_norm_merge(s.mean, s.var, s.unbiased, s.total, peers.gather(own));
  if (count <= 1) check_count(int64_t(s.total.item()), x, " and no more elsewhere");  // with more here, nobody waits for the total
  return s;
}

Statistics statistics(const Tensor& x, const RunningStatistics& running, const BatchNormOptions& options) {
  if (!options.training) return {running.mean.detach(), running.var.detach()};
  const int64_t count = x.size() / std::max<int64_t>(x.shape()[x.rank() - 1], 1);
  const Statistics s = options.peers ? of_all(x, count, *options.peers) : of_batch(x, count);
  if (!running.mean.defined() || recomputing()) return s;
  batch_norm_running(running.mean, running.var, running.batches, s.mean, s.unbiased, options.momentum, s.correction);
  for (const Tensor& t : {running.mean, running.var, running.batches}) t.storage()->written_by("batch_norm");
  return s;
}

// db and dw of all rows over `count`: what dx subtracts.
struct Sums {
  Tensor db, dw;
  int64_t count = 0;
};

// The peers' and these, as means, so that the host need not know how many rows there are. db and dw themselves stay those of x.
Sums of_all(const Tensor& db, const Tensor& dw, const Tensor& total, const BatchNormPeers& peers) {
  const Tensor sums = concat({db, dw});
  peers.add(sums);
  const Tensor means = sums / total;
  return {slice(means, 0, 0, db.size()), slice(means, 0, db.size(), 2 * db.size()), 1};
}

}  // namespace

Tensor batch_norm(const Tensor& x0, const Tensor& w0, const Tensor& b0, const RunningStatistics& running, const BatchNormOptions& options,
                  Activation f, const Tensor& residual0) {
  check(x0, w0, b0, running, options, residual0);
  const Tensor x = contiguous(x0), w = contiguous(w0), b = contiguous(b0);
  const Tensor residual = residual0.defined() ? contiguous(residual0) : residual0;
  const bool relu = f == Activation::relu;
  const Statistics s = statistics(x, running, options);
  Tensor y = empty_like(x), mask;
  const auto wanted = [](const Tensor& t) { return t.defined() && requires_grad(t); };
  if (relu && grad_enabled() && (wanted(x) || wanted(w) || wanted(b) || wanted(residual)))
    mask = Tensor({batch_norm_mask_bytes(x.size())}, DType::u8, x.device());
  batch_norm_forward(y, mask, x, residual, s.mean, s.var, w, b, options.eps, f);
  return record("batch_norm", {x, w, b, residual}, y,
                [x = save(x), w = save(w), mask = save(mask), mean = save(s.mean), var = save(s.var), total = save(s.total),
                 count = s.count, peers = options.training ? options.peers : nullptr, training = options.training, relu,
                 eps = options.eps, has_residual = residual.defined()](const Tensor& dy0) -> Tensors {
    const Tensor dy = contiguous(dy0);
    const bool wants_residual = has_residual && needs_grad(3);
    Tensor dx, dw, db, dresidual;
    if (needs_grad(1) || needs_grad(2) || (needs_grad(0) && training)) {
      dw = needs_grad(1) ? empty_grad(1, (*w).shape(), (*w).dtype(), dy.device()) : empty_like(*w);
      db = needs_grad(2) ? empty_grad(2, (*w).shape(), (*w).dtype(), dy.device()) : empty_like(*w);
      batch_norm_backward_sums(db, dw, dy, *mask, *x, *mean, *var, eps);
    }
    if (wants_residual) dresidual = relu ? empty_like(dy) : dy;
    if (needs_grad(0) || (wants_residual && relu)) {
      dx = empty_like(dy);
      Sums sums;
      if (training) sums = peers && needs_grad(0) ? of_all(db, dw, *total, *peers) : Sums{db, dw, count};
      batch_norm_backward(dx, relu ? dresidual : Tensor{}, dy, *mask, *x, *mean, *var, *w, sums.db, sums.dw, sums.count, eps);
    }
    return {dx, dw, db, dresidual};
  });
}

// Parameters of a sample in the dtype that goes with x's.
static Tensor wide(const Tensor& t) { return t.dtype() == DType::f64 ? t : cast(t, DType::f32); }
static RunningStatistics made_up(const Tensor& x) {
  const Tensor at = cast(arange(x.shape()[x.rank() - 1], DType::i64, x.device()), statistics_dtype(x));
  return {at * 0.1 - 0.2, at * 0.25 + 0.5, {}};
}

template <Activation f>
static Tensor train(const Tensors& t) {
  const bool mixed = t[1].dtype() != t[0].dtype();  // a test of the error
  return batch_norm(t[0], mixed ? t[1] : wide(t[1]), wide(t[2]), {}, {}, f, t.size() > 3 ? t[3] : Tensor{});
}
template <Activation f>
static Tensor infer(const Tensors& t) {
  const bool mixed = t[1].dtype() != t[0].dtype();
  return batch_norm(t[0], mixed ? t[1] : wide(t[1]), wide(t[2]), made_up(t[0]), {.training = false}, f, t.size() > 3 ? t[3] : Tensor{});
}
constexpr Activation kNone = Activation::none, kRelu = Activation::relu;
static Sample workload(const char* tag, const Shape& x, bool residual, Tensor (*call)(const Tensors&)) {
  const Shape channels{x[x.rank() - 1]};
  Sample s{tag, {{x}, {channels}, {channels}}, call};
  if (residual) s.inputs.push_back({x});
  return s;
}
static const RegisterOp register_batch_norm{{
    .name = "batch_norm",
    .samples = {{"rows", {{{8, 5}}, {{5}}, {{5}}}, train<kNone>},
                {"images", {{{2, 3, 4, 6}}, {{6}}, {{6}}}, train<kNone>},
                {"relu", {{{2, 3, 3, 4}}, {{4}}, {{4}}}, train<kRelu>},
                {"add_relu", {{{2, 4, 2, 5}}, {{5}}, {{5}}, {{2, 4, 2, 5}}}, train<kRelu>},
                {"add", {{{6, 3}}, {{3}}, {{3}}, {{6, 3}}}, train<kNone>},
                {"two_rows", {{{2, 17}}, {{17}}, {{17}}}, train<kRelu>},
                {"one_channel", {{{37, 1}}, {{1}}, {{1}}}, train<kRelu>},
                {"odd", {{{3, 7, 5, 17}}, {{17}}, {{17}}}, train<kRelu>},
                {"large", {{{1031, 3}}, {{3}}, {{3}}}, train<kRelu>},
                {"vectors", {{{64, 32}}, {{32}}, {{32}}, {{64, 32}}}, train<kRelu>},
                {"inference", {{{2, 3, 3, 4}}, {{4}}, {{4}}}, infer<kNone>},
                {"inference_add_relu", {{{5, 3}}, {{3}}, {{3}}, {{5, 3}}}, infer<kRelu>},
                {"empty", {{{0, 4}}, {{4}}, {{4}}}, infer<kRelu>}},
    .workloads = {workload("relu_128x32x32x64", {128, 32, 32, 64}, false, train<kRelu>),
                  workload("add_relu_128x32x32x64", {128, 32, 32, 64}, true, train<kRelu>),
                  workload("add_relu_128x16x16x128", {128, 16, 16, 128}, true, train<kRelu>),
                  workload("add_relu_128x8x8x256", {128, 8, 8, 256}, true, train<kRelu>),
                  workload("add_relu_128x4x4x512", {128, 4, 4, 512}, true, train<kRelu>),
                  workload("inference_128x32x32x64", {128, 32, 32, 64}, false, infer<kRelu>)},
    .invalid = {{"channels", {{{3, 5}}, {{4}}, {{4}}}, train<kNone>},
                {"one_value", {{{1, 5}}, {{5}}, {{5}}}, train<kNone>},
                {"rank", {{{5}}, {{5}}, {{5}}}, train<kNone>},
                {"residual", {{{3, 5}}, {{5}}, {{5}}, {{3, 1}}}, train<kNone>}},
    .tolerance = 16,
}};

}  // namespace ringtape
