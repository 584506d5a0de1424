#include "kernels/l2_normalize.h"

#include "autograd/ops/along.h"

namespace ringtape {

Tensor l2_normalize(const Tensor& x, int axis, double eps) {
  if (const CastTo to = autocast("l2_normalize", x)) return l2_normalize(to(x), axis, eps);
  check_float(x, "l2_normalize");
  const int at = axis_of(x, axis, "l2_normalize");
  if (x.rank() == 0) return reshape(l2_normalize(reshape(x, {1}), 0, eps), {});
  if (at != x.rank() - 1) return transpose(l2_normalize(transpose(x, at, -1), -1, eps), at, -1);
  const Tensor rows = contiguous(x);
  const int64_t columns = rows.shape()[rows.rank() - 1];
  Tensor y = empty_like(rows);
  Tensor norm({columns ? rows.size() / columns : 0}, rows.dtype() == DType::f64 ? DType::f64 : DType::f32,
              rows.device());
  l2_normalize_forward(y, norm, rows, eps);
  return record("l2_normalize", {rows}, y, [y = save(y), norm = save(norm), eps](const Tensor& dy) -> Tensors {
    Tensor dx = empty_like(dy);
    l2_normalize_backward(dx, *y, *norm, contiguous(dy), eps);
    return {dx};
  });
}

static Tensor call_l2_normalize(const Tensors& t) { return l2_normalize(t[0]); }
static const RegisterOp register_l2_normalize{{
    .name = "l2_normalize",
    .samples = {{"rows", {{{4, 7}}}, call_l2_normalize},
                {"long", {{{3, 130}}}, call_l2_normalize},
                {"first_axis", {{{6, 3}}}, [](const Tensors& t) { return l2_normalize(t[0], 0); }},
                {"below_eps", {{{2, 5}, -0.1, 0.1}}, [](const Tensors& t) { return l2_normalize(t[0], -1, 10); }},
                {"scalar", {{{}, 1, 2}}, call_l2_normalize},
                {"empty", {{{0, 4}}}, call_l2_normalize},
                {"no_elements", {{{3, 0}}}, call_l2_normalize},
                {"empty_first_axis", {{{0, 4}}}, [](const Tensors& t) { return l2_normalize(t[0], 0); }}},
    .workloads = {{"8192x512", {{{8192, 512}}}, call_l2_normalize}},
    .invalid = {{"axis", {{{3, 5}}}, [](const Tensors& t) { return l2_normalize(t[0], 2); }}},
    .tolerance = 4,
}};

}  // namespace ringtape
