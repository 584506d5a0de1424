#include "kernels/cumsum.h"

#include "autograd/ops/along.h"

namespace ringtape {

static Tensor running_sum(const Tensor& x, int at, bool reverse) {
  const Tensor dense = contiguous(x.detach());
  const Tensor y(x.shape(), is_float(x.dtype()) ? x.dtype() : DType::i64, x.device());
  cumsum_forward(three_axes(y, at), three_axes(dense, at), reverse);
  return y;
}

Tensor cumsum(const Tensor& x, int axis) {
  if (const CastTo to = autocast("cumsum", x)) return cumsum(to(x), axis);
  const int at = axis_of(x, axis, "cumsum");
  return record("cumsum", {x}, running_sum(x, at, false),
                [at](const Tensor& dy) -> Tensors { return {running_sum(dy, at, true)}; });
}

static const RegisterOp register_cumsum{{
    .name = "cumsum",
    .samples = {{"rows", {{{5, 9}}}, [](const Tensors& t) { return cumsum(t[0], 1); }},
                {"columns", {{{9, 5}}}, [](const Tensors& t) { return cumsum(t[0], 0); }},
                {"middle", {{{2, 7, 3}}}, [](const Tensors& t) { return cumsum(t[0], -2); }},
                {"wide", {{{4, 300}}}, [](const Tensors& t) { return cumsum(t[0], 0); }},
                {"long", {{{2, 3000}}}, [](const Tensors& t) { return cumsum(t[0], 1); }},
                {"scalar", {{{}}}, [](const Tensors& t) { return cumsum(t[0], 0); }},
                {"empty", {{{0, 3}}}, [](const Tensors& t) { return cumsum(t[0], 0); }},
                {"of_none", {{{3, 0}}}, [](const Tensors& t) { return cumsum(t[0], 1); }}},
    .workloads = {{"rows_4096x4096", {{{4096, 4096}}}, [](const Tensors& t) { return cumsum(t[0], 1); }},
                  {"columns_4096x4096", {{{4096, 4096}}}, [](const Tensors& t) { return cumsum(t[0], 0); }},
                  {"16777216", {{{1 << 24}}}, [](const Tensors& t) { return cumsum(t[0], 0); }}},
    .invalid = {{"axis", {{{3, 5}}}, [](const Tensors& t) { return cumsum(t[0], 2); }}},
    .tolerance = 16,
}};

}  // namespace ringtape
