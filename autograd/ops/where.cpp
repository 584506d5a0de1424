#include "kernels/where.h"

#include "autograd/create.h"
#include "autograd/ops/common.h"

namespace ringtape {

// In `dtype`, the result type.
static Tensor where_as(const Tensor& cond, const Tensor& a, const Tensor& b, DType dtype) {
  check_defined(cond, "where");
  RT_CHECK_AS(DTypeError, cond.dtype() == DType::b8, "where: the condition is ", cond.dtype(),
              ", not b8; compare first");
  const Shape shape = broadcast(broadcast(a.shape(), b.shape(), "where"), cond.shape(), "where");
  const auto like = [dtype](const Tensor& x) { return is_float(dtype) ? cast(x, dtype) : x; };
  const Tensor va = like(a), vb = like(b);
  Tensor y(shape, dtype, a.device());
  where_forward(y, cond, va, vb);
  return record("where", {va, vb}, y,
                [cond = save(cond), a_shape = a.shape(), b_shape = b.shape()](const Tensor& dy) -> Tensors {
                  const Tensor none = zeros({}, dy.dtype(), dy.device());
                  Tensor da = empty_like(dy), db = empty_like(dy);
                  where_forward(da, *cond, dy, none);
                  where_forward(db, *cond, none, dy);
                  return {sum_to(da, a_shape), sum_to(db, b_shape)};
                });
}

Tensor where(const Tensor& cond, const Tensor& a, const Tensor& b) {
  check_same_device(a, b, "where");
  return where_as(cond, a, b, result_type(a, b));
}
Tensor where(const Tensor& cond, const Tensor& a, Scalar b) {
  check_defined(a, "where");
  const DType dtype = result_type(a, b);
  return where_as(cond, a, number_of(b, dtype, a.device()), dtype);
}
Tensor where(const Tensor& cond, Scalar a, const Tensor& b) {
  check_defined(b, "where");
  const DType dtype = result_type(b, a);
  return where_as(cond, number_of(a, dtype, b.device()), b, dtype);
}

static Tensor call_where(const Tensors& t) { return where(t[0], t[1], t[2]); }
static const RegisterOp register_where{{
    .name = "where",
    .samples = {{"same", {{{3, 5}, 0, 1, Fill::mask}, {{3, 5}}, {{3, 5}}}, call_where},
                {"broadcast", {{{3, 1}, 0, 1, Fill::mask}, {{5}}, {{2, 1, 1}}}, call_where},
                {"number",
                 {{{3, 5}, 0, 1, Fill::mask}, {{3, 5}}},
                 [](const Tensors& t) { return where(t[0], t[1], 0.5) + where(t[0], -0.25, t[1]); }},
                {"index",
                 {{{4, 6}, 0, 1, Fill::mask}, {{6}, -9, 9, Fill::index}, {{4, 1}, -9, 9, Fill::index}},
                 call_where},
                {"empty", {{{0, 5}, 0, 1, Fill::mask}, {{5}}, {{1, 1}}}, call_where}},
    .workloads = {{"4096x4096", {{{4096, 4096}, 0, 1, Fill::mask}, {{4096, 4096}}, {{4096, 4096}}}, call_where}},
    .invalid = {{"condition", {{{3, 5}}, {{3, 5}}, {{3, 5}}}, call_where},
                {"shapes", {{{3, 5}, 0, 1, Fill::mask}, {{3}}, {{3, 5}}}, call_where}},
}};

}  // namespace ringtape
