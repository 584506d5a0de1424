#include "kernels/gather.h"

#include "autograd/ops/along.h"
#include "kernels/copy.h"

namespace ringtape {
namespace {

// The first elements of x along each axis: a view.
Tensor corner(const Tensor& x, const Shape& shape) { return x.window(shape, x.strides()); }

Shape with_size(const Shape& shape, int at, int64_t size) { return shape.rank() == 0 ? shape : shape.with(at, size); }

// An index may be smaller than x along the other axes.
void check_places(const Tensor& x, int at, const Tensor& index, const char* op) {
  bool fits = index.rank() == x.rank();
  for (int i = 0; fits && i < x.rank(); ++i) fits = i == at || index.shape()[i] <= x.shape()[i];
  RT_CHECK_AS(ShapeError, fits, op, ": the index has shape ", index.shape(), ", which must not exceed ", x.shape(),
              " along other axes than ", at);
}

Tensor gathered(const Tensor& x, int at, const Tensor& index) {
  const Tensor y(index.shape(), x.dtype(), x.device());
  const Tensor seen = contiguous(corner(x.detach(), with_size(index.shape(), at, size_along(x, at))));
  gather_forward(three_axes(y, at), three_axes(seen, at), three_axes(index, at));
  return y;
}

// Sums of 16 bits are made in f32 and rounded once.
DType dtype_of_sums(DType dtype) { return size_of(dtype) == 2 ? DType::f32 : dtype; }

// Adds src to y, which has the dtype of the sums, at the places of the index.
void scatter_into(const Tensor& y, int at, const Tensor& index, const Tensor& src) {
  const Tensor part = corner(y, with_size(index.shape(), at, size_along(y, at))), dense = contiguous(part);
  const Tensor added = contiguous(cast(corner(src.detach(), index.shape()), y.dtype()));
  scatter_add_forward(three_axes(dense, at), three_axes(index, at), three_axes(added, at), false);
  if (!part.contiguous()) copy(part, dense);
}

}  // namespace

Tensor gather(const Tensor& x, int axis, const Tensor& index) {
  const int at = axis_of(x, axis, "gather");
  const Tensor places = as_index(index, "gather");
  check_places(x, at, places, "gather");
  return record("gather", {x}, gathered(x, at, places),
                [own = x.shape(), at, places = save(places)](const Tensor& dy) -> Tensors {
                  const Tensor dx = zeros(own, dtype_of_sums(dy.dtype()), dy.device());
                  scatter_into(dx, at, *places, dy);
                  return {cast(dx, dy.dtype())};
                });
}

Tensor scatter_add(const Tensor& x, int axis, const Tensor& index, const Tensor& src) {
  if (const CastTo to = autocast("scatter_add", x, src)) return scatter_add(to(x), axis, index, to(src));
  const int at = axis_of(x, axis, "scatter_add");
  check_same(x, src, "scatter_add");
  RT_CHECK_AS(DTypeError, x.dtype() != DType::b8, "scatter_add: no sums of b8; convert it with cast(x, DType::i64)");
  const Tensor places = as_index(index, "scatter_add");
  check_places(x, at, places, "scatter_add");
  bool covered = places.rank() == src.rank();
  for (int i = 0; covered && i < src.rank(); ++i) covered = places.shape()[i] <= src.shape()[i];
  RT_CHECK_AS(ShapeError, covered, "scatter_add: the index has shape ", places.shape(), ", which must not exceed src ",
              src.shape());
  const Tensor y(x.shape(), dtype_of_sums(x.dtype()), x.device());
  copy(y, x);
  scatter_into(y, at, places, src);
  return record("scatter_add", {x, src}, cast(y, x.dtype()),
                [own = src.shape(), at, places = save(places)](const Tensor& dy) -> Tensors {
                  Tensor dsrc;
                  if (needs_grad(1)) dsrc = gathered(dy, at, *places);
                  if (dsrc.defined() && dsrc.shape() != own) {  // the rest of src is not used
                    const Tensor part = dsrc;
                    dsrc = zeros(own, dy.dtype(), dy.device());
                    copy(corner(dsrc, part.shape()), part);
                  }
                  return {dy, dsrc};
                });
}

static Tensor gather_first(const Tensors& t) { return gather(t[0], 0, t[1]); }
static Tensor gather_second(const Tensors& t) { return gather(t[0], 1, t[1]); }
static const RegisterOp register_gather{{
    .name = "gather",
    .samples = {{"last", {{{4, 6}}, {{4, 3}, 0, 6, Fill::index}}, gather_second},
                {"first", {{{5, 3}}, {{7, 3}, 0, 5, Fill::index}}, gather_first},
                {"middle",
                 {{{2, 4, 3}}, {{2, 6, 3}, 0, 4, Fill::index}},
                 [](const Tensors& t) { return gather(t[0], -2, t[1]); }},
                {"smaller", {{{4, 6, 5}}, {{2, 8, 3}, 0, 6, Fill::index}}, gather_second},
                {"labels", {{{9, 5}}, {{9, 1}, 0, 5, Fill::index}}, gather_second},
                {"scalar", {{{}}, {{}, 0, 1, Fill::index}}, gather_first},
                {"no_index", {{{3, 5}}, {{3, 0}, 0, 1, Fill::index}}, gather_second},
                {"empty", {{{0, 5}}, {{0, 2}, 0, 5, Fill::index}}, gather_second}},
    .workloads = {{"4096x4096", {{{4096, 4096}}, {{4096, 4096}, 0, 4096, Fill::index}}, gather_second},
                  {"rows_4096x4096", {{{4096, 4096}}, {{4096, 4096}, 0, 4096, Fill::index}}, gather_first}},
    .invalid = {{"range", {{{3, 5}}, {{3, 2}, 5, 6, Fill::index}}, gather_second},
                {"negative", {{{3, 5}}, {{3, 2}, -1, 0, Fill::index}}, gather_second},
                {"rank", {{{3, 5}}, {{3}, 0, 3, Fill::index}}, gather_second},
                {"larger", {{{3, 5}}, {{4, 2}, 0, 5, Fill::index}}, gather_second},
                {"index_dtype", {{{3, 5}}, {{3, 2}}}, gather_second}},
}};

static Tensor scatter_rows(const Tensors& t) { return scatter_add(t[0], 0, t[2], t[1]); }
static Tensor scatter_last(const Tensors& t) { return scatter_add(t[0], -1, t[2], t[1]); }
static const RegisterOp register_scatter_add{{
    .name = "scatter_add",
    .samples = {{"last", {{{4, 6}}, {{4, 3}}, {{4, 3}, 0, 6, Fill::index}}, scatter_last},
                {"first", {{{5, 3}}, {{9, 3}}, {{9, 3}, 0, 5, Fill::index}}, scatter_rows},
                {"middle",
                 {{{2, 4, 3}}, {{2, 6, 3}}, {{2, 6, 3}, 0, 4, Fill::index}},
                 [](const Tensors& t) { return scatter_add(t[0], 1, t[2], t[1]); }},
                {"smaller",
                 {{{4, 6, 5}}, {{3, 9, 4}}, {{2, 8, 3}, 0, 6, Fill::index}},
                 [](const Tensors& t) { return scatter_add(t[0], 1, t[2], t[1]); }},
                {"few_places", {{{3}}, {{400}}, {{400}, 0, 3, Fill::index}}, scatter_rows},
                {"many_columns", {{{2, 1100}}, {{5, 1100}}, {{5, 1100}, 0, 2, Fill::index}}, scatter_rows},
                {"no_index", {{{3, 5}}, {{3, 4}}, {{3, 0}, 0, 1, Fill::index}}, scatter_last},
                {"empty", {{{0, 5}}, {{0, 2}}, {{0, 2}, 0, 5, Fill::index}}, scatter_last}},
    .workloads = {{"4096x4096", {{{4096, 4096}}, {{4096, 4096}}, {{4096, 4096}, 0, 4096, Fill::index}}, scatter_last},
                  {"rows_4096x4096",
                   {{{4096, 4096}}, {{4096, 4096}}, {{4096, 4096}, 0, 4096, Fill::index}},
                   scatter_rows}},
    .invalid = {{"range", {{{3, 5}}, {{3, 2}}, {{3, 2}, 5, 6, Fill::index}}, scatter_last},
                {"source", {{{3, 5}}, {{3, 1}}, {{3, 2}, 0, 5, Fill::index}}, scatter_last},
                {"larger", {{{3, 5}}, {{4, 2}}, {{4, 2}, 0, 5, Fill::index}}, scatter_last},
                {"index_dtype", {{{3, 5}}, {{3, 2}}, {{3, 2}}}, scatter_last}},
    .tolerance = 8,
}};

}  // namespace ringtape
