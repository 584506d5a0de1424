#include "kernels/where.h"

#include "autograd/create.h"
#include "autograd/ops/common.h"

namespace ringtape {

Tensor where(const Tensor& cond, const Tensor& a, const Tensor& b) {
  if (const CastTo to = autocast("where", a, b)) return where(cond, to(a), to(b));
  check_float(a, "where");
  check_same(a, b, "where");
  RT_CHECK_AS(DTypeError, cond.dtype() == DType::b8, "where: the condition is ", cond.dtype(),
              ", not b8; compare first");
  const Shape shape = broadcast(broadcast(a.shape(), b.shape(), "where"), cond.shape(), "where");
  Tensor y(shape, a.dtype(), a.device());
  where_forward(y, cond, a, b);
  return record("where", {a, b}, y,
                [cond = save(cond), a_shape = a.shape(), b_shape = b.shape()](const Tensor& dy) -> Tensors {
    const Tensor none = zeros({}, dy.dtype(), dy.device());
    Tensor da = empty_like(dy), db = empty_like(dy);
    where_forward(da, *cond, dy, none);
    where_forward(db, *cond, none, dy);
    return {sum_to(da, a_shape), sum_to(db, b_shape)};
  });
}

static Tensor call_where(const Tensors& t) { return where(t[0], t[1], t[2]); }
static const RegisterOp register_where{{
    .name = "where",
    .samples = {{"same", {{{3, 5}, 0, 1, Fill::mask}, {{3, 5}}, {{3, 5}}}, call_where},
                {"broadcast", {{{3, 1}, 0, 1, Fill::mask}, {{5}}, {{2, 1, 1}}}, call_where},
                {"empty", {{{0, 5}, 0, 1, Fill::mask}, {{5}}, {{1, 1}}}, call_where}},
    .workloads = {{"4096x4096", {{{4096, 4096}, 0, 1, Fill::mask}, {{4096, 4096}}, {{4096, 4096}}}, call_where}},
    .invalid = {{"condition", {{{3, 5}}, {{3, 5}}, {{3, 5}}}, call_where},
                {"shapes", {{{3, 5}, 0, 1, Fill::mask}, {{3}}, {{3, 5}}}, call_where}},
}};

}  // namespace ringtape
