#include "autograd/ops/along.h"
#include "kernels/argmax.h"
#include "kernels/gather.h"
#include "kernels/sort.h"

namespace ringtape {
static Tensor place_of_extreme(const Tensor& x, int axis, bool keepdim, bool smallest, const char* op) {
  const int at = axis_of(x, axis, op);
  RT_CHECK_AS(ShapeError, size_along(x, at) > 0, op, ": axis ", at, " of shape ", x.shape(), " has no elements");
  const Tensor seen = three_axes(contiguous(x.detach()), at);
  const Shape shape = x.rank() == 0 ? Shape{} : keepdim ? x.shape().with(at, 1) : x.shape().without(at);
  const Tensor index(shape, DType::i64, x.device());
  argmax_forward(index, seen, smallest);
  return index;
}

static Tensor all_elements(const Tensor& x, const char* op) {
  RT_CHECK_AS(ShapeError, x.defined(), op, ": an undefined tensor");
  return reshape(x.detach(), {x.size()});
}

// The first k elements of x sorted along an axis.
static SortResult first_sorted(const Tensor& x, int at, int64_t k, bool descending, const char* op) {
  const int64_t n = size_along(x, at);
  RT_CHECK_AS(ShapeError, n >> 32 == 0, op, ": axis ", at, " of shape ", x.shape(), " has 2^32 elements or more");
  const bool last = at == std::max(x.rank(), 1) - 1;
  const Tensor lines = contiguous(last ? x.detach() : transpose(x.detach(), at, -1));  // the axis is the last
  const Shape shape = x.rank() == 0 ? Shape{} : lines.shape().with(x.rank() - 1, k);
  Tensor values(shape, x.dtype(), x.device()), indices(shape, DType::i64, x.device());
  const auto rows = [](const Tensor& t, int64_t columns) {
    const Shape two{columns ? t.size() / columns : 0, columns};
    return t.window(two, contiguous_strides(two));
  };
  sort_forward(rows(values, k), rows(indices, k), rows(lines, n), descending);
  if (!last) values = transpose(values, at, -1), indices = transpose(indices, at, -1);
  values = record(op, {x}, values, [indices = save(indices), own = x.shape(), at](const Tensor& dy) -> Tensors {
    const Tensor dx = zeros(own, dy.dtype(), dy.device());
    scatter_add_forward(three_axes(dx, at), three_axes(contiguous(*indices), at), three_axes(contiguous(dy), at), true);
    return {dx};
  });
  return {values, indices};
}

Tensor argmax(const Tensor& x, int axis, bool keepdim) { return place_of_extreme(x, axis, keepdim, false, "argmax"); }
Tensor argmin(const Tensor& x, int axis, bool keepdim) { return place_of_extreme(x, axis, keepdim, true, "argmin"); }
Tensor argmax(const Tensor& x) { return argmax(all_elements(x, "argmax"), 0); }
Tensor argmin(const Tensor& x) { return argmin(all_elements(x, "argmin"), 0); }

SortResult sort(const Tensor& x, int axis, bool descending) {
  const int at = axis_of(x, axis, "sort");
  return first_sorted(x, at, size_along(x, at), descending, "sort");
}

Tensor argsort(const Tensor& x, int axis, bool descending) {
  const int at = axis_of(x, axis, "argsort");
  return first_sorted(x.detach(), at, size_along(x, at), descending, "argsort").indices;
}

SortResult topk(const Tensor& x, int64_t k, int axis, bool largest) {
  const int at = axis_of(x, axis, "topk");
  RT_CHECK_AS(ShapeError, x.rank() > 0 || k == 1, "topk: k is ", k, ", but a tensor without axes has 1 element");
  RT_CHECK_AS(ShapeError, k >= 0 && k <= size_along(x, at), "topk: k is ", k, ", but axis ", at, " of shape ",
              x.shape(), " has ", size_along(x, at), " elements");
  return first_sorted(x, at, k, largest, "topk");
}

#define RT_EXTREME_RECORD(op)                                                                              \
  static const RegisterOp register_##op {                                                                  \
    {                                                                                                      \
      .name = #op,                                                                                         \
      .samples = {{"rows", {{{4, 37}}}, [](const Tensors& t) { return op(t[0], -1); }},                    \
                  {"columns", {{{37, 4}}}, [](const Tensors& t) { return op(t[0], 0); }},                  \
                  {"middle", {{{3, 7, 2}}}, [](const Tensors& t) { return op(t[0], 1, true); }},           \
                  {"long_rows", {{{2, 5000}}}, [](const Tensors& t) { return op(t[0], 1); }},              \
                  {"long_columns", {{{9000, 5}}}, [](const Tensors& t) { return op(t[0], 0); }},           \
                  {"wide", {{{3, 2, 700}}}, [](const Tensors& t) { return op(t[0], 0); }},                 \
                  {"all", {{{5, 7}}}, [](const Tensors& t) { return op(t[0]); }},                          \
                  {"scalar", {{{}}}, [](const Tensors& t) { return op(t[0], 0, true); }},                  \
                  {"empty", {{{0, 3}}}, [](const Tensors& t) { return op(t[0], 1); }}},                    \
      .workloads = {{"8192x1000", {{{8192, 1000}}}, [](const Tensors& t) { return op(t[0], 1); }},         \
                    {"columns_4096x4096", {{{4096, 4096}}}, [](const Tensors& t) { return op(t[0], 0); }}, \
                    {"all_4096x4096", {{{4096, 4096}}}, [](const Tensors& t) { return op(t[0]); }}},       \
      .invalid = {{"axis", {{{3, 5}}}, [](const Tensors& t) { return op(t[0], 2); }},                      \
                  {"of_none", {{{3, 0}}}, [](const Tensors& t) { return op(t[0], 1); }},                   \
                  {"all_of_none", {{{3, 0}}}, [](const Tensors& t) { return op(t[0]); }}},                 \
      .differentiable = false,                                                                             \
    }                                                                                                      \
  }
RT_EXTREME_RECORD(argmax);
RT_EXTREME_RECORD(argmin);
#undef RT_EXTREME_RECORD

static const RegisterOp register_sort{{
    .name = "sort",
    .samples = {{"rows", {{{4, 9}}}, [](const Tensors& t) { return sort(t[0]).values; }},
                {"falling", {{{3, 70}}}, [](const Tensors& t) { return sort(t[0], 1, true).values; }},
                {"columns", {{{7, 3}}}, [](const Tensors& t) { return sort(t[0], 0).values; }},
                {"middle", {{{2, 5, 3}}}, [](const Tensors& t) { return sort(t[0], 1, true).values; }},
                {"scalar", {{{}}}, [](const Tensors& t) { return sort(t[0]).values; }},
                {"of_one", {{{3, 1}}}, [](const Tensors& t) { return sort(t[0]).values; }},
                {"no_rows", {{{0, 3}}}, [](const Tensors& t) { return sort(t[0]).values; }},
                {"empty", {{{3, 0}}}, [](const Tensors& t) { return sort(t[0]).values; }}},
    .workloads = {{"4096x4096", {{{4096, 4096}}}, [](const Tensors& t) { return sort(t[0]).values; }},
                  {"1000000", {{{1000000}}}, [](const Tensors& t) { return sort(t[0]).values; }},
                  {"65536x100", {{{65536, 100}}}, [](const Tensors& t) { return sort(t[0]).values; }}},
    .invalid = {{"axis", {{{3, 5}}}, [](const Tensors& t) { return sort(t[0], 2).values; }}},
}};
static const RegisterOp register_argsort{{
    .name = "argsort",
    .samples = {{"rows", {{{4, 37}}}, [](const Tensors& t) { return argsort(t[0]); }},
                {"falling_columns", {{{37, 3}}}, [](const Tensors& t) { return argsort(t[0], 0, true); }},
                {"long", {{{2, 3000}}}, [](const Tensors& t) { return argsort(t[0]); }},
                {"empty", {{{0, 3}}}, [](const Tensors& t) { return argsort(t[0]); }}},
    .invalid = {{"axis", {{{3, 5}}}, [](const Tensors& t) { return argsort(t[0], -3); }}},
    .differentiable = false,
}};
static const RegisterOp register_topk{{
    .name = "topk",
    .samples = {{"rows", {{{4, 9}}}, [](const Tensors& t) { return topk(t[0], 3).values; }},
                {"smallest", {{{7, 5}}}, [](const Tensors& t) { return topk(t[0], 2, 0, false).values; }},
                {"few_of_many", {{{2, 900}}}, [](const Tensors& t) { return topk(t[0], 5).values; }},
                {"more_of_many", {{{2, 600}}}, [](const Tensors& t) { return topk(t[0], 40, 1, false).values; }},
                {"all", {{{3, 40}}}, [](const Tensors& t) { return topk(t[0], 40).values; }},
                {"none", {{{3, 4}}}, [](const Tensors& t) { return topk(t[0], 0).values; }},
                {"empty", {{{0, 4}}}, [](const Tensors& t) { return topk(t[0], 2).values; }}},
    .workloads = {{"5_of_8192x1000", {{{8192, 1000}}}, [](const Tensors& t) { return topk(t[0], 5).values; }},
                  {"200_of_1024x50000", {{{1024, 50000}}}, [](const Tensors& t) { return topk(t[0], 200).values; }}},
    .invalid = {{"more_than_there_are", {{{3, 5}}}, [](const Tensors& t) { return topk(t[0], 6).values; }},
                {"negative", {{{3, 5}}}, [](const Tensors& t) { return topk(t[0], -1).values; }},
                {"axis", {{{3, 5}}}, [](const Tensors& t) { return topk(t[0], 1, 2).values; }}},
}};

}  // namespace ringtape
