#include "kernels/triangle.h"

#include "autograd/ops/common.h"

namespace ringtape {

static Tensor triangle(const Tensor& x, int64_t diagonal, bool upper) {
  const Tensor dense = contiguous(x.detach()), y = empty_like(x);
  const int64_t rows = x.shape()[x.rank() - 2], columns = x.shape()[x.rank() - 1];
  const int64_t matrix = rows * columns;
  const auto matrices = [&](const Tensor& t) {
    return t.window({matrix ? t.size() / matrix : 0, rows, columns}, {matrix, columns, 1});
  };
  triangle_forward(matrices(y), matrices(dense), std::clamp(diagonal, -rows - 1, columns + 1), upper);
  return y;
}

static Tensor triangle_op(const Tensor& x, int64_t diagonal, bool upper, const char* op) {
  RT_CHECK_AS(ShapeError, x.defined() && x.rank() >= 2, op, ": expected matrices (..., M, N), got ",
              x.defined() ? x.shape().str() : "an undefined tensor");
  return record(op, {x}, triangle(x, diagonal, upper),
                [diagonal, upper](const Tensor& dy) -> Tensors { return {triangle(dy, diagonal, upper)}; });
}

Tensor tril(const Tensor& x, int64_t diagonal) { return triangle_op(x, diagonal, false, "tril"); }
Tensor triu(const Tensor& x, int64_t diagonal) { return triangle_op(x, diagonal, true, "triu"); }

#define RT_TRIANGLE_RECORD(op)                                                                      \
  static const RegisterOp register_##op {                                                           \
    {                                                                                               \
      .name = #op,                                                                                  \
      .samples = {{"square", {{{4, 4}}}, [](const Tensors& t) { return op(t[0]); }},                \
                  {"wide", {{{2, 3, 7}}}, [](const Tensors& t) { return op(t[0], 2); }},            \
                  {"tall", {{{7, 3}}}, [](const Tensors& t) { return op(t[0], -3); }},              \
                  {"far", {{{3, 3}}}, [](const Tensors& t) { return op(t[0], int64_t{1} << 62); }}, \
                  {"empty", {{{0, 3}}}, [](const Tensors& t) { return op(t[0]); }}},                \
      .workloads = {{"4096x4096", {{{4096, 4096}}}, [](const Tensors& t) { return op(t[0]); }}},    \
      .invalid = {{"vector", {{{3}}}, [](const Tensors& t) { return op(t[0]); }}},                  \
    }                                                                                               \
  }
RT_TRIANGLE_RECORD(tril);
RT_TRIANGLE_RECORD(triu);
#undef RT_TRIANGLE_RECORD

}  // namespace ringtape
