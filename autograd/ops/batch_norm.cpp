#include "kernels/batch_norm.h"

#include "autograd/checkpoint.h"
#include "autograd/create.h"
#include "autograd/ops/common.h"
#include "kernels/fill.h"
#include "kernels/reduce.h"

namespace ringtape {
namespace {

void check_channels(const Tensor& x, const Tensor& t, const char* what) {
  const Shape wanted{x.shape()[x.rank() - 1]};
  RT_CHECK_AS(ShapeError, t.defined() && t.shape() == wanted, "batch_norm: expected ", what, " of shape ", wanted,
              " for x ", x.shape(), ", got ", t.defined() ? t.shape().str() : "none");
  RT_CHECK_AS(DTypeError, t.dtype() == wide_dtype(x), "batch_norm: x and ", what, " of ", x.dtype(), " and ", t.dtype(),
              "; ", what, " must be ", wide_dtype(x), ": convert it with cast(x, dtype)");
  RT_CHECK_AS(DeviceError, t.device() == x.device(), "batch_norm: x and ", what, " on ", x.device(), " and ",
              t.device(), "; move one with to(x, device)");
}

void check(const Tensor& x, const Tensor& w, const Tensor& b, const RunningStatistics& running,
           const BatchNormOptions& options, const Tensor& residual) {
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
    RT_CHECK_AS(ShapeError, residual.shape() == x.shape(), "batch_norm: a residual of shape ", residual.shape(),
                " for x ", x.shape());
  }
}

// The mean and variance for normalisation, of each part.
struct Statistics {
  Tensor mean, var;
  int64_t parts = 1;
  int64_t count = 0;  // rows of a part; 0 if mean and var do not depend on x
  Tensor total = {};  // rows of the peers' x and of this one: one element. None without peers
};

void check_count(int64_t count, const Tensor& x, const std::string& where) {
  RT_CHECK_AS(ShapeError, count > 1 || x.dim(-1) == 0,
              "batch_norm: expected more than 1 value per channel when training, got x ", x.shape(), where);
}

Statistics of_batch(const Tensor& x, int64_t count, int64_t parts, RunningUpdate running) {
  RT_CHECK_AS(ShapeError, parts >= 1 && x.dim(0) % parts == 0, "batch_norm: expected a batch of ", parts,
              " equal parts, got x ", x.shape());
  count /= parts;
  check_count(count, x, parts == 1 ? "" : concat(" in ", parts, " parts"));
  const Tensor mean({parts * x.dim(-1)}, wide_dtype(x), x.device()), var = empty_like(mean);
  running.correction = double(count) / double(count - 1);
  batch_norm_statistics(mean, var, x, running);
  return {mean, var, parts, count};
}

// Uses one message of a fixed size. All merge the same parts in the same order, so that all get the same bits. A sum of
// moments by the group would lose digits and depend on the collective's algorithm.
Statistics of_all(const Tensor& x, int64_t count, const BatchNormPeers& peers, const RunningUpdate& running) {
  const int64_t channels = x.dim(-1);
  const Tensor own({2 * channels + 1}, DType::f64, x.device());
  const auto place = [&own](int64_t begin, int64_t size) { return own.window({size}, {1}, begin); };
  batch_norm_statistics(place(0, channels), place(channels, channels), x, {});
  fill(place(2 * channels, 1), double(count));
  const Tensor mean({channels}, wide_dtype(x), x.device()), var = empty_like(mean), unbiased = empty_like(mean);
  const Tensor total({1}, mean.dtype(), x.device());
  batch_norm_merge(mean, var, unbiased, total, peers.gather(own));
  // With more here, nobody waits for the total.
  if (count <= 1) check_count(int64_t(total.item()), x, " and no values on the other ranks");
  if (running.mean.data) batch_norm_running(mean, unbiased, running);
  return {mean, var, 1, count, total};
}

Statistics statistics(const Tensor& x, const RunningStatistics& running, const BatchNormOptions& options) {
  if (!options.training) return {contiguous(running.mean.detach()), contiguous(running.var.detach())};
  const int64_t count = x.size() / std::max<int64_t>(x.dim(-1), 1);
  RunningUpdate update{.momentum = options.momentum};
  if (running.mean.defined() && !recomputing())
    update.mean = running.mean, update.var = running.var, update.batches = running.batches;
  const Statistics s =
      options.peers ? of_all(x, count, *options.peers, update) : of_batch(x, count, options.parts, update);
  if (update.mean.data)
    for (const Tensor& t : {running.mean, running.var, running.batches}) t.storage()->written_by("batch_norm");
  return s;
}

// db and dw over all `count` rows, for dx. Undefined if mean and var do not depend on x.
struct Sums {
  Tensor db, dw;
  int64_t count = 0;
};

// The sums of all peers, as means, so that the host need not know the number of rows.
Sums of_all(const Sums& own, const Tensor& total, const BatchNormPeers& peers) {
  const Tensor sums = concat({own.db, own.dw});
  peers.add(sums);
  const Tensor means = sums / total;
  return {slice(means, 0, 0, own.db.size()), slice(means, 0, own.db.size(), sums.size()), 1};
}

// Of each part. If there is only one, they are the gradients of w and b.
Sums sums_of(const Tensor& dy, const Tensor& mask, const Tensor& x, const Statistics& s, double eps) {
  const auto place = [&](size_t input) {
    return needs_grad(input) && s.parts == 1 ? empty_grad(input, s.mean.shape(), s.mean.dtype(), dy.device())
                                             : empty_like(s.mean);
  };
  const Sums out{place(2), place(1), s.count};
  batch_norm_backward_sums(out.db, out.dw, dy, mask, x, s.mean, s.var, eps);
  return out;
}

// The gradient of an input from the sums of each part.
Tensor sum_of_parts(size_t input, const Tensor& each, int64_t parts) {
  if (parts == 1) return each;
  if (!needs_grad(input)) return {};
  const int64_t channels = each.size() / parts;
  const Tensor out = empty_grad(input, {channels}, each.dtype(), each.device());
  sum_forward(out.window({1, channels}, {channels, 1}), each.window({parts, channels}, {channels, 1}));
  return out;
}

// What the backward pass needs to know of the ReLU: none if there is no ReLU, or no backward pass.
Tensor mask_for(const Tensor& x, int64_t parts, Activation f, std::initializer_list<Tensor> inputs) {
  const bool used =
      std::any_of(inputs.begin(), inputs.end(), [](const Tensor& t) { return t.defined() && requires_grad(t); });
  if (f != Activation::relu || !grad_enabled() || !used) return {};
  return Tensor({batch_norm_mask_bytes(x.size(), parts)}, DType::u8, x.device());
}

}  // namespace

Tensor batch_norm(const Tensor& x0, const Tensor& w0, const Tensor& b0, const RunningStatistics& running,
                  const BatchNormOptions& options, Activation f, const Tensor& residual0) {
  const auto fits = [](const Tensor& t) { return t.defined() && size_of(t.dtype()) > 2; };
  if (x0.defined() && x0.rank() > 0 && !(fits(w0) && fits(b0))) {  // 1 and 0; f32 of 16-bit ones
    const auto parameter = [&](const Tensor& t, double value) {
      const DType dtype = wide_dtype(x0);
      return !t.defined() ? full({x0.dim(-1)}, value, dtype, x0.device()) : fits(t) ? t : cast(t, dtype);
    };
    return batch_norm(x0, parameter(w0, 1), parameter(b0, 0), running, options, f, residual0);
  }
  check(x0, w0, b0, running, options, residual0);
  const Tensor x = contiguous(x0), w = contiguous(w0), b = contiguous(b0);
  const Tensor residual = residual0.defined() ? contiguous(residual0) : residual0;
  const bool relu = f == Activation::relu;
  const Statistics s = statistics(x, running, options);
  const int64_t parts = s.parts;
  const Tensor y = empty_like(x), mask = mask_for(x, parts, f, {x, w, b, residual});
  batch_norm_forward(y, mask, x, residual, s.mean, s.var, w, b, options.eps, f);
  describe([&] {
    if (options.training) return OpAttributes{{"training", int64_t{1}}};
    return OpAttributes{
        {"mean", s.mean}, {"var", s.var}, {"eps", options.eps}, {"relu", int64_t(relu)}, {"training", int64_t{0}}};
  });
  return record("batch_norm", {x, w, b, residual}, y,
                [x = save(x), w = save(w), mask = save(mask), mean = save(s.mean), var = save(s.var),
                 total = save(s.total), count = s.count, parts, peers = options.peers, training = options.training,
                 relu, eps = options.eps, has_residual = residual.defined()](const Tensor& dy0) -> Tensors {
                  const Tensor dy = contiguous(dy0);
                  const bool wants_residual = has_residual && needs_grad(3);
                  Tensor dx, dw, db, dresidual;
                  Sums sums;
                  if (needs_grad(1) || needs_grad(2) || (needs_grad(0) && training)) {
                    sums = sums_of(dy, *mask, *x, {*mean, *var, parts, count}, eps);
                    dw = sum_of_parts(1, sums.dw, parts), db = sum_of_parts(2, sums.db, parts);
                  }
                  if (wants_residual) dresidual = relu ? empty_like(dy) : dy;
                  if (needs_grad(0) || (wants_residual && relu)) {
                    dx = empty_like(dy);
                    if (!training) sums = {};
                    else if (peers && needs_grad(0)) sums = of_all(sums, *total, *peers);
                    batch_norm_backward(dx, relu ? View(dresidual) : View{}, dy, *mask, *x, *mean, *var, *w, sums.db,
                                        sums.dw, sums.count, eps);
                  }
                  return {dx, dw, db, dresidual};
                });
}

// Parameters of a sample in the dtype that matches x's.
static Tensor wide(const Tensor& t) { return t.dtype() == DType::f64 ? t : cast(t, DType::f32); }
static RunningStatistics made_up(const Tensor& x) {
  const Tensor at = cast(arange(x.shape()[x.rank() - 1], DType::i64, x.device()), wide_dtype(x));
  return {at * 0.1 - 0.2, at * 0.25 + 0.5, {}};
}

template <Activation f> static Tensor train(const Tensors& t) {
  const bool mixed = t[1].dtype() != t[0].dtype();  // a test of the error
  return batch_norm(t[0], mixed ? t[1] : wide(t[1]), wide(t[2]), {}, {}, f, t.size() > 3 ? t[3] : Tensor{});
}
static Tensor in_parts(const Tensors& t) {
  return batch_norm(t[0], t[1].dtype() != t[0].dtype() ? t[1] : wide(t[1]), wide(t[2]), {}, {.parts = 3},
                    Activation::relu, t[3]);
}
template <Activation f> static Tensor infer(const Tensors& t) {
  const bool mixed = t[1].dtype() != t[0].dtype();
  return batch_norm(t[0], mixed ? t[1] : wide(t[1]), wide(t[2]), made_up(t[0]), {.training = false}, f,
                    t.size() > 3 ? t[3] : Tensor{});
}
constexpr Activation kNone = Activation::none, kRelu = Activation::relu;
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
                {"split", {{{6, 3, 5}}, {{5}}, {{5}}, {{6, 3, 5}}}, in_parts},
                {"inference", {{{2, 3, 3, 4}}, {{4}}, {{4}}}, infer<kNone>},
                {"inference_add_relu", {{{5, 3}}, {{3}}, {{3}}, {{5, 3}}}, infer<kRelu>},
                {"empty", {{{0, 4}}, {{4}}, {{4}}}, infer<kRelu>},
                {"empty_vectors", {{{0, 3, 3, 32}}, {{32}}, {{32}}, {{0, 3, 3, 32}}}, infer<kRelu>},
                {"no_channels", {{{8, 0}}, {{0}}, {{0}}}, train<kRelu>}},
    .workloads = {{"relu_128x32x32x64", {{{128, 32, 32, 64}}, {{64}}, {{64}}}, train<kRelu>},
                  {"add_relu_128x32x32x64", {{{128, 32, 32, 64}}, {{64}}, {{64}}, {{128, 32, 32, 64}}}, train<kRelu>},
                  {"add_relu_128x16x16x128",
                   {{{128, 16, 16, 128}}, {{128}}, {{128}}, {{128, 16, 16, 128}}},
                   train<kRelu>},
                  {"add_relu_128x8x8x256", {{{128, 8, 8, 256}}, {{256}}, {{256}}, {{128, 8, 8, 256}}}, train<kRelu>},
                  {"add_relu_128x4x4x512", {{{128, 4, 4, 512}}, {{512}}, {{512}}, {{128, 4, 4, 512}}}, train<kRelu>},
                  {"inference_128x32x32x64", {{{128, 32, 32, 64}}, {{64}}, {{64}}}, infer<kRelu>}},
    .invalid = {{"channels", {{{3, 5}}, {{4}}, {{4}}}, train<kNone>},
                {"one_value", {{{1, 5}}, {{5}}, {{5}}}, train<kNone>},
                {"rank", {{{5}}, {{5}}, {{5}}}, train<kNone>},
                {"parts", {{{7, 5}}, {{5}}, {{5}}, {{7, 5}}}, in_parts},
                {"residual", {{{3, 5}}, {{5}}, {{5}}, {{3, 1}}}, train<kNone>}},
    .tolerance = 16,
}};

}  // namespace ringtape
