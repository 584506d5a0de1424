#include "autograd/ops/common.h"
#include "kernels/copy.h"

namespace ringtape {

// The view of x that a slice returns; `begin` and `end` are inside the axis.
static Tensor slice_view(const Tensor& x, int axis, int64_t begin, int64_t end, int64_t step) {
  const Shape strides = x.strides().with(axis, x.strides()[axis] * step);
  return x.window(x.shape().with(axis, (end - begin + step - 1) / step), strides, begin * x.strides()[axis]);
}

Tensor slice(const Tensor& x, int axis, int64_t begin, int64_t end, int64_t steps) {
  const int at = normalize_axis(axis, x.rank(), "slice");
  RT_CHECK_AS(ShapeError, steps >= 1, "slice: steps of ", steps, ", expected at least 1; see flip(x, axis)");
  const int64_t n = x.shape()[at], step = std::min(steps, std::max<int64_t>(n, 1));
  const auto inside = [n](int64_t i) { return std::clamp<int64_t>(i < 0 ? i + n : i, 0, n); };
  const int64_t from = inside(begin), to = std::max(from, inside(end));
  describe([&] {
    return OpAttributes{{"axis", int64_t(at)}, {"begin", from}, {"end", to == n ? kToEnd : to}, {"step", step}};
  });
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
                {"beyond", {{{4, 7}}}, [](const Tensors& t) { return slice(t[0], 1, 3, 100); }},
                {"to_the_end", {{{4, 7}}}, [](const Tensors& t) { return slice(t[0], 1, -3, kToEnd, 2); }},
                {"before", {{{4, 7}}}, [](const Tensors& t) { return slice(t[0], 0, -100, 2); }},
                {"reversed", {{{4, 7}}}, [](const Tensors& t) { return slice(t[0], 1, 5, 2); }},
                {"of_none", {{{0, 7}}}, [](const Tensors& t) { return slice(t[0], 1, 2, 5); }},
                {"empty", {{{4, 7}}}, [](const Tensors& t) { return slice(t[0], 0, 2, 2); }}},
    .workloads = {{"copy_half_4096x4096",
                   {{{4096, 4096}}},
                   [](const Tensors& t) { return contiguous(slice(t[0], 1, 0, 2048)); }}},
    .invalid = {{"axis", {{{3, 5}}}, [](const Tensors& t) { return slice(t[0], 2, 0, 1); }},
                {"step", {{{3, 5}}}, [](const Tensors& t) { return slice(t[0], 1, 0, 2, 0); }}},
}};

}  // namespace ringtape
