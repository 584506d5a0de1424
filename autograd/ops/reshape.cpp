#include "autograd/ops/common.h"
#include "kernels/copy.h"

namespace ringtape {

Tensor contiguous(const Tensor& x) {
  if (x.contiguous()) return x;
  Tensor y = empty_like(x);
  copy(y, x);
  return record("contiguous", {x}, y, [](const Tensor& dy) -> Tensors { return {dy}; });
}

// Strides for a view of x's elements in row-major order as `shape`, if one exists: each group of axes that is
// contiguous in memory is split again.
static std::optional<Shape> strides_for(const Tensor& x, const Shape& shape) {
  if (x.contiguous()) return contiguous_strides(shape);
  Shape own, step;  // x without axes of size 1
  for (int i = 0; i < x.rank(); ++i)
    if (x.shape()[i] != 1) own.append(x.shape()[i]), step.append(x.strides()[i]);
  Shape strides = shape;
  int axis = own.rank() - 1;
  int64_t left = 1, next = 0;  // elements of the current group not yet given to an axis of `shape`, and their stride
  for (int i = shape.rank() - 1; i >= 0; --i) {
    if (shape[i] == 1) {
      strides[i] = 1;
      continue;
    }
    if (left == 1) {
      if (axis < 0) return {};
      left = own[axis], next = step[axis--];
      while (axis >= 0 && step[axis] == next * left) left *= own[axis--];
    }
    if (left % shape[i] != 0) return {};
    strides[i] = next;
    next *= shape[i];
    left /= shape[i];
  }
  return strides;
}

Tensor reshape(const Tensor& x, const Shape& wanted) {
  Shape shape = wanted;
  int open = -1;
  for (int i = 0; i < shape.rank(); ++i) {
    if (shape[i] >= 0) continue;
    RT_CHECK_AS(ShapeError, shape[i] == -1 && open < 0, "reshape: ", wanted,
                ": one axis may be -1, the others at least 0");
    open = i, shape[i] = 1;
  }
  const int64_t known = shape.size();
  if (open >= 0) {
    RT_CHECK_AS(ShapeError, known > 0 && x.size() % known == 0, "reshape: ", x.shape(), " does not divide into ",
                wanted);
    shape[open] = x.size() / known;
  }
  RT_CHECK_AS(ShapeError, shape.size() == x.size(), "reshape: ", x.shape(), " has ", x.size(), " elements, ", shape,
              " has ", shape.size());
  if (shape == x.shape()) return x;
  const std::optional<Shape> strides = strides_for(x, shape);
  if (!strides) return reshape(contiguous(x), shape);
  const Tensor y = record("reshape", {x}, x.window(shape, *strides),
                          [own = x.shape()](const Tensor& dy) -> Tensors { return {reshape(dy, own)}; });
  if (!x.node() || !x.node()->again) return y;
  return recomputed(y, [node = x.node(), shape] { return reshape(node->again(), shape); });
}

Tensor flatten(const Tensor& x, int first_axis) {
  const int first = x.rank() == first_axis ? first_axis : normalize_axis(first_axis, x.rank(), "flatten");
  Shape shape;
  int64_t rest = 1;
  for (int i = 0; i < first; ++i) shape.append(x.shape()[i]);
  for (int i = first; i < x.rank(); ++i) rest *= x.shape()[i];
  shape.append(rest);
  return reshape(x, shape);
}

static const RegisterOp register_contiguous{{
    .name = "contiguous",
    .samples = {{"transposed", {{{3, 5}}}, [](const Tensors& t) { return contiguous(transpose(t[0])); }},
                {"large", {{{70, 45}}}, [](const Tensors& t) { return contiguous(transpose(t[0])); }},
                {"already", {{{3, 5}}}, [](const Tensors& t) { return contiguous(t[0]); }},
                {"empty", {{{3, 0}}}, [](const Tensors& t) { return contiguous(transpose(t[0])); }}},
}};
static const RegisterOp register_reshape{{
    .name = "reshape",
    .samples = {{"view",
                 {{{4, 6}}},
                 [](const Tensors& t) {
                   return reshape(t[0], {2, 2, -1});
                 }},
                {"copy",
                 {{{4, 6}}},
                 [](const Tensors& t) {
                   return reshape(transpose(t[0]), {8, 3});
                 }},
                {"scalar", {{{1, 1}}}, [](const Tensors& t) { return reshape(t[0], {}); }},
                {"empty",
                 {{{0, 3}}},
                 [](const Tensors& t) {
                   return reshape(t[0], {3, 0, 2});
                 }}},
    .invalid = {{"count",
                 {{{3, 5}}},
                 [](const Tensors& t) {
                   return reshape(t[0], {4, 4});
                 }},
                {"two_open",
                 {{{3, 5}}},
                 [](const Tensors& t) {
                   return reshape(t[0], {-1, -1});
                 }},
                {"divide",
                 {{{3, 5}}},
                 [](const Tensors& t) {
                   return reshape(t[0], {4, -1});
                 }}},
}};
static const RegisterOp register_flatten{{
    .name = "flatten",
    .samples = {{"images", {{{2, 3, 4, 5}}}, [](const Tensors& t) { return flatten(t[0]); }},
                {"all", {{{2, 3}}}, [](const Tensors& t) { return flatten(t[0], 0); }},
                {"vector", {{{4}}}, [](const Tensors& t) { return flatten(t[0]); }},
                {"empty", {{{0, 3, 4, 5}}}, [](const Tensors& t) { return flatten(t[0]); }}},
    .invalid = {{"axis", {{{3, 5}}}, [](const Tensors& t) { return flatten(t[0], 3); }}},
}};

}  // namespace ringtape
