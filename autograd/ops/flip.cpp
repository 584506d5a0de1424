#include "autograd/ops/common.h"
#include "kernels/copy.h"

namespace ringtape {

Tensor flip(const Tensor& x, int axis) {
  const int at = normalize_axis(axis, x.rank(), "flip");
  const Tensor y = empty_like(x);
  const int64_t last = std::max<int64_t>(x.shape()[at] - 1, 0), step = x.strides()[at];
  copy(y, x.window(x.shape(), x.strides().with(at, -step), last * step));
  return record("flip", {x}, y, [at](const Tensor& dy) -> Tensors { return {flip(dy, at)}; });
}

static const RegisterOp register_flip{{
    .name = "flip",
    .samples = {{"first", {{{4, 3}}}, [](const Tensors& t) { return flip(t[0], 0); }},
                {"last", {{{2, 3, 7}}}, [](const Tensors& t) { return flip(t[0], -1); }},
                {"width", {{{2, 3, 4, 3}}}, [](const Tensors& t) { return flip(t[0], 2); }},
                {"empty", {{{0, 3}}}, [](const Tensors& t) { return flip(t[0], 0); }}},
    .workloads = {{"width_128x32x32x3", {{{128, 32, 32, 3}}}, [](const Tensors& t) { return flip(t[0], 2); }}},
    .invalid = {{"axis", {{{3, 5}}}, [](const Tensors& t) { return flip(t[0], 2); }}},
}};

}  // namespace ringtape
