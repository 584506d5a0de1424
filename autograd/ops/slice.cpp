#include "autograd/ops/common.h"
#include "kernels/copy.h"

namespace ringtape {

// The view of x that a slice returns; `begin` and `end` are inside the axis.
static Tensor slice_view(const Tensor& x, int axis, int64_t begin, int64_t end, int64_t step) {
  const Shape strides = x.strides().with(axis, x.strides()[axis] * step);
  return x.window(x.shape().with(axis, (end - begin + step - 1) / step), strides, begin * x.strides()[axis]);
}

Tensor slice(const Tensor& x, int axis, int64_t begin, int64_t end, int64_t step) {
  const int at = normalize_axis(axis, x.rank(), "slice");
  const int64_t n = x.shape()[at], from = begin < 0 ? begin + n : begin, to = end < 0 ? end + n : end;
  RT_CHECK_AS(ShapeError, step >= 1 && from >= 0 && from <= to && to <= n, "slice: [", begin, ", ", end,
              ") in steps of ", step, " of axis ", at, " of shape ", x.shape());
  return record("slice", {x}, slice_view(x, at, from, to, step),
                [shape = x.shape(), at, from, to, step](const Tensor& dy) -> Tensors {
    const Tensor dx = zeros(shape, dy.dtype(), dy.device());
    copy(slice_view(dx, at, from, to, step), dy);
    return {dx};
  });
}

static const RegisterOp register_slice{{
    .name = "slice",
    .samples = {{"middle", {{{4, 7}}}, [](const Tensors& t) { return slice(t[0], 1, 2, 5); }},
                {"negative", {{{4, 7}}}, [](const Tensors& t) { return slice(t[0], 0, -3, -1); }},
                {"steps", {{{4, 7}}}, [](const Tensors& t) { return slice(t[0], -1, 1, 7, 3); }},
                {"of_none", {{{0, 7}}}, [](const Tensors& t) { return slice(t[0], 1, 2, 5); }},
                {"empty", {{{4, 7}}}, [](const Tensors& t) { return slice(t[0], 0, 2, 2); }}},
    .workloads = {{"copy_half_4096x4096", {{{4096, 4096}}},
                   [](const Tensors& t) { return contiguous(slice(t[0], 1, 0, 2048)); }}},
    .invalid = {{"range", {{{3, 5}}}, [](const Tensors& t) { return slice(t[0], 1, 2, 6); }},
                {"order", {{{3, 5}}}, [](const Tensors& t) { return slice(t[0], 1, 3, 2); }},
                {"step", {{{3, 5}}}, [](const Tensors& t) { return slice(t[0], 1, 0, 2, 0); }}},
}};

}  // namespace ringtape
