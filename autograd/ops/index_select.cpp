#include "kernels/index_select.h"

#include "autograd/ops/along.h"

namespace ringtape {

Tensor index_select(const Tensor& x, int axis, const Tensor& index) {
  check_defined(x, "index_select");
  check_defined(index, "index_select");
  const int at = normalize_axis(axis, x.rank(), "index_select");
  RT_CHECK_AS(ShapeError, index.rank() == 1, "index_select: the index has shape ", index.shape(), ", not (I,)");
  const Tensor dense = contiguous(x), order = as_index(index, "index_select");
  const Shape shape = x.shape().with(at, index.size());
  Tensor y(shape, x.dtype(), x.device());
  index_select_forward(three_axes(y, at), three_axes(dense, at), order);
  return record("index_select", {dense}, y, [own = x.shape(), order = save(order), at](const Tensor& dy) -> Tensors {
    Tensor dx(own, dy.dtype(), dy.device());
    index_select_backward(three_axes(dx, at), three_axes(contiguous(dy), at), *order);
    return {dx};
  });
}

static const RegisterOp register_index_select{{
    .name = "index_select",
    .samples =
        {{"rows", {{{5, 3}}, {{7}, 0, 5, Fill::index}}, [](const Tensors& t) { return index_select(t[0], 0, t[1]); }},
         {"middle",
          {{{2, 4, 3}}, {{6}, 0, 4, Fill::index}},
          [](const Tensors& t) { return index_select(t[0], 1, t[1]); }},
         {"last", {{{3, 5}}, {{2}, 0, 5, Fill::index}}, [](const Tensors& t) { return index_select(t[0], -1, t[1]); }},
         {"no_rows",
          {{{0, 5}}, {{0}, 0, 1, Fill::index}},
          [](const Tensors& t) { return index_select(t[0], 0, t[1]); }},
         {"none_of_many",
          {{{65, 70}}, {{0}, 0, 65, Fill::index}},
          [](const Tensors& t) { return index_select(t[0], 0, t[1]); }},
         {"none", {{{3, 5}}, {{0}, 0, 5, Fill::index}}, [](const Tensors& t) { return index_select(t[0], 0, t[1]); }}},
    .workloads = {{"8192_of_65536x256",
                   {{{65536, 256}}, {{8192}, 0, 65536, Fill::index}},
                   [](const Tensors& t) { return index_select(t[0], 0, t[1]); }}},
    .invalid = {{"range",
                 {{{3, 5}}, {{2}, 3, 4, Fill::index}},
                 [](const Tensors& t) { return index_select(t[0], 0, t[1]); }},
                {"index_dtype", {{{3, 5}}, {{2}}}, [](const Tensors& t) { return index_select(t[0], 0, t[1]); }},
                {"index_rank",
                 {{{3, 5}}, {{2, 1}, 0, 3, Fill::index}},
                 [](const Tensors& t) { return index_select(t[0], 0, t[1]); }}},
}};

}  // namespace ringtape
