#include "autograd/ops/common.h"

namespace ringtape {

Tensor expand(const Tensor& x, const Shape& wanted) {
  check_defined(x, "expand");
  Shape shape = wanted;
  for (int i = 0; i < shape.rank(); ++i) {
    const int own = i - (shape.rank() - x.rank());
    RT_CHECK_AS(ShapeError, shape[i] >= (own >= 0 ? -1 : 0), "expand: ", wanted, " for shape ", x.shape(),
                ": sizes are at least 0, or -1 for that of an axis that x has");
    if (shape[i] == -1) shape[i] = x.shape()[own];
  }
  RT_CHECK_AS(ShapeError, shape.rank() >= x.rank() && broadcast(x.shape(), shape, "expand") == shape, "expand: shape ",
              x.shape(), " does not broadcast to ", shape);
  (void)shape.size();  // throws if there are too many
  Shape strides = shape;
  const int lead = shape.rank() - x.rank();
  for (int i = 0; i < shape.rank(); ++i)
    strides[i] = i < lead || (x.shape()[i - lead] == 1 && shape[i] != 1) ? 0 : x.strides()[i - lead];
  return record("expand", {x}, x.window(shape, strides),
                [own = x.shape()](const Tensor& dy) -> Tensors { return {sum_to(dy, own)}; });
}

static const RegisterOp register_expand{{
    .name = "expand",
    .samples = {{"rows",
                 {{{5}}},
                 [](const Tensors& t) {
                   return expand(t[0], {3, 5});
                 }},
                {"columns",
                 {{{3, 1}}},
                 [](const Tensors& t) {
                   return expand(t[0], {2, 3, 4});
                 }},
                {"kept",
                 {{{3, 1, 2}}},
                 [](const Tensors& t) {
                   return expand(t[0], {2, -1, 4, -1});
                 }},
                {"of_none",
                 {{{0, 1}}},
                 [](const Tensors& t) {
                   return expand(t[0], {0, 5});
                 }},
                {"empty",
                 {{{1, 3}}},
                 [](const Tensors& t) {
                   return expand(t[0], {0, 3});
                 }}},
    .workloads = {{"copy_4096x4096",
                   {{{4096}}},
                   [](const Tensors& t) {
                     return contiguous(expand(t[0], {4096, 4096}));
                   }}},
    .invalid = {{"size",
                 {{{3, 5}}},
                 [](const Tensors& t) {
                   return expand(t[0], {3, 6});
                 }},
                {"new_axis",
                 {{{3, 5}}},
                 [](const Tensors& t) {
                   return expand(t[0], {-1, 3, 5});
                 }},
                {"rank", {{{3, 5}}}, [](const Tensors& t) { return expand(t[0], {5}); }}},
}};

}  // namespace ringtape
