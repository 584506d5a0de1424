#include "kernels/index_select.h"

#include "autograd/ops/common.h"

namespace ringtape {

// The shape with three axes: all before `axis`, `axis`, and all after it.
static Shape three_axes(const Shape& shape, int axis) {
  Shape out{1, shape[axis], 1};
  for (int i = 0; i < shape.rank(); ++i)
    if (i != axis) out[i < axis ? 0 : 2] *= shape[i];
  return out;
}

Tensor index_select(const Tensor& x, int axis, const Tensor& index) {
  const int at = normalize_axis(axis, x.rank(), "index_select");
  RT_CHECK_AS(ShapeError, index.rank() == 1, "index_select: the index has shape ", index.shape(), ", not (I,)");
  RT_CHECK_AS(DTypeError, index.dtype() == DType::i64, "index_select: the index is ", index.dtype(), ", not i64");
  const Tensor dense = contiguous(x), order = contiguous(index);
  const Shape shape = x.shape().with(at, index.size());
  Tensor y(shape, x.dtype(), x.device());
  const auto view3 = [at](const Tensor& t) {
    const Shape three = three_axes(t.shape(), at);
    return t.window(three, contiguous_strides(three));
  };
  index_select_forward(view3(y), view3(dense), order);
  return record("index_select", {dense}, y, [own = x.shape(), order = save(order), view3](const Tensor& dy) -> Tensors {
    Tensor dx(own, dy.dtype(), dy.device());
    index_select_backward(view3(dx), view3(contiguous(dy)), *order);
    return {dx};
  });
}

static const RegisterOp register_index_select{{
    .name = "index_select",
    .samples =
        {{"rows", {{{5, 3}}, {{7}, 0, 5, Fill::index}}, [](const Tensors& t) { return index_select(t[0], 0, t[1]); }},
         {"middle", {{{2, 4, 3}}, {{6}, 0, 4, Fill::index}},
          [](const Tensors& t) { return index_select(t[0], 1, t[1]); }},
         {"last", {{{3, 5}}, {{2}, 0, 5, Fill::index}}, [](const Tensors& t) { return index_select(t[0], -1, t[1]); }},
         {"no_rows", {{{0, 5}}, {{0}, 0, 1, Fill::index}},
          [](const Tensors& t) { return index_select(t[0], 0, t[1]); }},
         {"none_of_many", {{{65, 70}}, {{0}, 0, 65, Fill::index}},
          [](const Tensors& t) { return index_select(t[0], 0, t[1]); }},
         {"none", {{{3, 5}}, {{0}, 0, 5, Fill::index}}, [](const Tensors& t) { return index_select(t[0], 0, t[1]); }}},
    .workloads = {{"8192_of_65536x256", {{{65536, 256}}, {{8192}, 0, 65536, Fill::index}},
                   [](const Tensors& t) { return index_select(t[0], 0, t[1]); }}},
    .invalid = {{"range", {{{3, 5}}, {{2}, 3, 4, Fill::index}},
                 [](const Tensors& t) { return index_select(t[0], 0, t[1]); }},
                {"index_dtype", {{{3, 5}}, {{2}}}, [](const Tensors& t) { return index_select(t[0], 0, t[1]); }},
                {"index_rank", {{{3, 5}}, {{2, 1}, 0, 3, Fill::index}},
                 [](const Tensors& t) { return index_select(t[0], 0, t[1]); }}},
}};

}  // namespace ringtape
