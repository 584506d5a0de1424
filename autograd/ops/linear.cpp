#include "autograd/ops/common.h"
#include "kernels/matmul.h"
#include "kernels/reduce.h"
#include "kernels/unary.h"

namespace ringtape {

static void check_linear(const Tensor& x, const Tensor& w, const Tensor& b) {
  check_float(x, "linear");
  check_same(x, w, "linear");
  if (b.defined()) check_same(x, b, "linear");
  const bool fits = w.rank() == 2 && x.rank() >= 1 && x.shape()[x.rank() - 1] == w.shape()[1];
  RT_CHECK_AS(ShapeError, fits && (!b.defined() || b.shape() == Shape{w.shape()[0]}),
              "linear: expected x (..., I), w (O, I), b (O), got ", x.shape(), ", ", w.shape(), ", ",
              b.defined() ? b.shape().str() : "no b");
}

Tensor linear(const Tensor& x, const Tensor& w, const Tensor& b, Activation f) {
  if (const CastTo to = autocast("linear", x, w, b)) return linear(to(x), to(w), to(b), f);
  check_linear(x, w, b);
  const int64_t in = w.shape()[1], out = w.shape()[0];
  const Tensor rows = x.rank() == 2 ? x : reshape(x, {x.shape().with(x.rank() - 1, 1).size(), in});
  Tensor y({rows.shape()[0], out}, x.dtype(), x.device());
  const Tensor bias = b.defined() ? contiguous(b) : b;
  linear_forward(y, rows, w, bias, f);
  const bool relu = f == Activation::relu;
  const auto backward = [x = save(rows), w = save(w), y = save(relu ? y : Tensor{}),
                         has_bias = b.defined()](const Tensor& dz) -> Tensors {
    Tensor dy = dz;  // before the activation
    if ((*y).defined()) {
      dy = Tensor((*y).shape(), dz.dtype(), dz.device());
      relu_backward(dy, *y, *y, dz);
    }
    const auto matrix = [](const Tensor& t) {
      return t.window({1, t.shape()[0], t.shape()[1]}, {0, t.strides()[0], t.strides()[1]});
    };
    Tensor dx, dw, db;
    if (needs_grad(0)) {
      dx = empty_grad(0, (*x).shape(), dy.dtype(), dy.device());
      matmul_forward(matrix(dx), matrix(dy), matrix(*w));
    }
    if (needs_grad(1)) {
      dw = empty_grad(1, (*w).shape(), dy.dtype(), dy.device());
      matmul_forward(matrix(dw), matrix(transpose(dy)), matrix(*x));
    }
    if (has_bias && needs_grad(2)) {
      db = empty_grad(2, {dy.shape()[1]}, dy.dtype(), dy.device());
      sum_forward(db.window({1, db.size()}, {0, 1}), dy);
    }
    return {dx, dw, db};
  };
  describe([&] { return OpAttributes{{"relu", int64_t(relu)}}; });
  y = record("linear", {rows, w, bias}, y, backward);
  return x.rank() == 2 ? y : reshape(y, x.shape().with(x.rank() - 1, out));
}

static Tensor call_linear(const Tensors& t) { return linear(t[0], t[1], t[2]); }
static double linear_flops(const Tensors& t, const Tensor& y) {
  return 2.0 * double(y.size()) * double(t[1].shape()[1]);
}
static const RegisterOp register_linear{{
    .name = "linear",
    .samples = {{"bias", {{{3, 5}}, {{4, 5}}, {{4}}}, call_linear},
                {"no_bias", {{{7, 3}}, {{2, 3}}}, [](const Tensors& t) { return linear(t[0], t[1]); }},
                {"batch_axes", {{{2, 3, 5}}, {{4, 5}}, {{4}}}, call_linear},
                {"vector", {{{5}}, {{4, 5}}, {{4}}}, call_linear},
                {"relu",
                 {{{3, 5}}, {{4, 5}}, {{4}}},
                 [](const Tensors& t) { return linear(t[0], t[1], t[2], Activation::relu); }},
                {"odd", {{{17, 33}}, {{19, 33}}, {{19}}}, call_linear},
                {"empty", {{{0, 5}}, {{4, 5}}, {{4}}}, call_linear},
                {"empty_blocks", {{{0, 70}}, {{150, 70}}, {{150}}}, call_linear},
                {"empty_relu",
                 {{{0, 5}}, {{4, 5}}, {{4}}},
                 [](const Tensors& t) { return linear(t[0], t[1], t[2], Activation::relu); }},
                {"no_inputs", {{{40, 0}}, {{150, 0}}, {{150}}}, call_linear},
                {"no_outputs", {{{40, 70}}, {{0, 70}}, {{0}}}, call_linear}},
    .workloads = {{"16x784x128", {{{16, 784}}, {{128, 784}}, {{128}}}, call_linear},
                  {"1024x1024x1024", {{{1024, 1024}}, {{1024, 1024}}, {{1024}}}, call_linear}},
    .invalid = {{"inner", {{{3, 5}}, {{4, 6}}, {{4}}}, call_linear},
                {"bias", {{{3, 5}}, {{4, 5}}, {{5}}}, call_linear}},
    .flops = linear_flops,
    .tolerance = 4,
}};

}  // namespace ringtape
