#include <cmath>

#include "autograd/create.h"
#include "autograd/ops/along.h"
#include "kernels/fill.h"
#include "kernels/gather.h"
#include "kernels/index_select.h"
#include "kernels/where.h"

namespace ringtape {

Tensor embedding(const Tensor& index, const Tensor& weight, std::optional<int64_t> padding) {
  const Tensor order = as_index(index, "embedding");
  RT_CHECK_AS(ShapeError, weight.defined() && weight.rank() == 2, "embedding: expected weights (V, D), got ",
              weight.defined() ? weight.shape().str() : "none");
  const int64_t n = weight.shape()[0], depth = weight.shape()[1];
  if (padding && *padding < 0) *padding += n;
  RT_CHECK_AS(UsageError, !padding || (*padding >= 0 && *padding < n), "embedding: the padding is not one of ", n,
              " rows");
  check_index(order, n, "embedding");
  Shape shape = index.shape();
  shape.append(depth);
  const Tensor dense = contiguous(weight), y(shape, weight.dtype(), weight.device());
  const auto rows = [depth](const Tensor& t, int64_t count) {
    return t.window({1, count, depth}, {count * depth, depth, 1});
  };
  const auto flat = [](const Tensor& t) { return t.window({t.size()}, {1}); };
  index_select_forward(rows(y, order.size()), rows(dense, n), flat(order));
  const auto backward = [order = save(order), n, depth, padding, rows, flat](const Tensor& dy) -> Tensors {
    const Tensor dw = empty_grad(0, {n, depth}, dy.dtype(), dy.device());
    index_select_backward(rows(dw, n), rows(contiguous(dy), (*order).size()), flat(*order));
    if (padding) fill(dw.window({depth}, {1}, *padding * depth), 0);
    return {dw};
  };
  return record("embedding", {dense}, y, backward);
}

Tensor one_hot(const Tensor& index, int64_t classes) {
  const Tensor order = as_index(index, "one_hot");
  RT_CHECK_AS(UsageError, classes >= 0, "one_hot: ", classes, " classes");
  check_index(order, classes, "one_hot");
  Shape shape = index.shape();
  shape.append(classes);
  const Tensor y = zeros(shape, DType::i64, index.device());
  const Shape one{order.size(), 1, 1};
  const Tensor counted = full({order.size()}, 1, DType::i64, index.device());
  scatter_add_forward(y.window({order.size(), classes, 1}, {classes, 1, 1}), order.window(one, {1, 1, 1}),
                      counted.window(one, {1, 1, 1}), true);
  return y;
}

// Whether a whole number or truth value of that dtype can be `value`.
static bool holds(DType dtype, Scalar value) {
  if (value.dtype() == DType::f32 &&
      (value.real() != std::trunc(value.real()) || !(value.real() >= -0x1p63 && value.real() < 0x1p63)))
    return false;
  const int64_t whole = value.dtype() == DType::f32 ? int64_t(value.real()) : value.integer();
  switch (dtype) {
    case DType::b8: return whole == 0 || whole == 1;
    case DType::u8: return whole >= 0 && whole <= UINT8_MAX;
    case DType::i32: return whole >= INT32_MIN && whole <= INT32_MAX;
    default: return true;
  }
}

Tensor masked_fill(const Tensor& x, const Tensor& mask, Scalar value) {
  RT_CHECK_AS(ShapeError, x.defined() && mask.defined(), "masked_fill: an undefined tensor");
  RT_CHECK_AS(DTypeError, mask.dtype() == DType::b8, "masked_fill: the mask is ", mask.dtype(),
              ", not b8; compare first");
  const Shape shape = broadcast(x.shape(), mask.shape(), "masked_fill");
  if (!is_float(x.dtype())) {
    RT_CHECK_AS(DTypeError, holds(x.dtype(), value), "masked_fill: a value of ", value.real(), " for ", x.dtype(),
                ", which cannot hold it; convert x with cast(x, dtype)");
    const int64_t whole = value.dtype() == DType::f32 ? int64_t(value.real()) : value.integer();
    return where(mask, to(cast(from_host(std::vector<int64_t>{whole}, {}), x.dtype()), x.device()), x);
  }
  const auto filled = [](const Tensor& t, const Tensor& chosen, const Shape& shape, double number) {
    const Tensor y(shape, t.dtype(), t.device());
    where_forward(y, chosen, full({}, number, t.dtype(), t.device()), t);
    return y;
  };
  return record("masked_fill", {x}, filled(x, mask, shape, value.real()),
                [mask = save(mask), own = x.shape(), filled](const Tensor& dy) -> Tensors {
                  return {sum_to(filled(dy, *mask, dy.shape(), 0), own)};
                });
}

static Tensor call_embedding(const Tensors& t) { return embedding(t[1], t[0]); }
static const RegisterOp register_embedding{{
    .name = "embedding",
    .samples = {{"tokens", {{{7, 5}}, {{2, 3}, 0, 7, Fill::index}}, call_embedding},
                {"row", {{{3, 4}}, {{}, 0, 3, Fill::index}}, call_embedding},
                {"padding",
                 {{{3, 4}}, {{9}, 0, 2, Fill::index}},
                 [](const Tensors& t) { return embedding(t[1], t[0], -1); }},
                {"many", {{{70, 9}}, {{2, 40}, 0, 70, Fill::index}}, call_embedding},
                {"no_tokens", {{{3, 4}}, {{2, 0}, 0, 3, Fill::index}}, call_embedding},
                {"empty", {{{0, 4}}, {{0}, 0, 1, Fill::index}}, call_embedding},
                {"no_depth", {{{3, 0}}, {{2}, 0, 3, Fill::index}}, call_embedding}},
    .workloads = {{"32x512_of_50000x512", {{{50000, 512}}, {{32, 512}, 0, 50000, Fill::index}}, call_embedding}},
    .invalid = {{"range", {{{3, 5}}, {{2}, 3, 4, Fill::index}}, call_embedding},
                {"index_dtype", {{{3, 5}}, {{2}}}, call_embedding},
                {"weights", {{{5}}, {{2}, 0, 3, Fill::index}}, call_embedding},
                {"padding",
                 {{{3, 5}}, {{2}, 0, 3, Fill::index}},
                 [](const Tensors& t) { return embedding(t[1], t[0], 3); }}},
}};
static const RegisterOp register_one_hot{{
    .name = "one_hot",
    .samples = {{"labels", {{{5}, 0, 4, Fill::index}}, [](const Tensors& t) { return one_hot(t[0], 4); }},
                {"matrix", {{{2, 3}, 0, 4, Fill::index}}, [](const Tensors& t) { return one_hot(t[0], 6); }},
                {"many", {{{2000}, 0, 3, Fill::index}}, [](const Tensors& t) { return one_hot(t[0], 3); }},
                {"empty", {{{0}, 0, 4, Fill::index}}, [](const Tensors& t) { return one_hot(t[0], 4); }}},
    .workloads = {{"8192x1000",
                   {{{8192}, 0, 1000, Fill::index}},
                   [](const Tensors& t) { return one_hot(t[0], 1000); }}},
    .invalid = {{"range", {{{3}, 4, 5, Fill::index}}, [](const Tensors& t) { return one_hot(t[0], 4); }},
                {"dtype", {{{3}}}, [](const Tensors& t) { return one_hot(t[0], 4); }}},
    .differentiable = false,
}};

static Tensor call_masked_fill(const Tensors& t) { return masked_fill(t[0], t[1], 0.5); }
static const RegisterOp register_masked_fill{{
    .name = "masked_fill",
    .samples = {{"same", {{{3, 5}}, {{3, 5}, 0, 1, Fill::mask}}, call_masked_fill},
                {"broadcast", {{{4, 1, 5}}, {{3, 1}, 0, 1, Fill::mask}}, call_masked_fill},
                {"empty", {{{0, 5}}, {{5}, 0, 1, Fill::mask}}, call_masked_fill}},
    .workloads = {{"4096x4096", {{{4096, 4096}}, {{4096, 4096}, 0, 1, Fill::mask}}, call_masked_fill}},
    .invalid = {{"mask", {{{3, 5}}, {{3, 5}, 0, 2, Fill::index}}, call_masked_fill},
                {"shapes", {{{3, 5}}, {{3}, 0, 1, Fill::mask}}, call_masked_fill}},
}};

}  // namespace ringtape
