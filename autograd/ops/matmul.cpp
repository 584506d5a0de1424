#include "kernels/matmul.h"

#include "autograd/ops/common.h"

namespace ringtape {
namespace {

// (..., rows, columns) as (B, rows, columns): a view where strides allow.
Tensor as_batch(const Tensor& x, const Shape& lead, int64_t batch) {
  Shape full = lead;
  full.append(x.shape()[x.rank() - 2]);
  full.append(x.shape()[x.rank() - 1]);
  if (x.rank() == 2)  // one matrix for all: stride 0
    return x.window({batch, full[full.rank() - 2], full[full.rank() - 1]}, {0, x.strides()[0], x.strides()[1]});
  return reshape(x.shape() == full ? x.detach() : expand(x.detach(), full), {batch, full[full.rank() - 2], full[full.rank() - 1]});
}

void multiply(const Tensor& y, const Tensor& a, const Tensor& b) {
  Shape lead;
  for (int i = 0; i + 2 < y.rank(); ++i) lead.append(y.shape()[i]);
  const int64_t batch = lead.size();
  matmul_forward(as_batch(y, lead, batch), as_batch(a, lead, batch), as_batch(b, lead, batch));
}

}  // namespace

Tensor matmul(const Tensor& a, const Tensor& b) {
  if (const CastTo to = autocast("matmul", a, b)) return matmul(to(a), to(b));
  check_float(a, "matmul");
  check_same(a, b, "matmul");
  RT_CHECK_AS(ShapeError, a.rank() >= 2 && b.rank() >= 2 && a.shape()[a.rank() - 1] == b.shape()[b.rank() - 2],
              "matmul: expected (..., m, k) and (..., k, n), got ", a.shape(), " and ", b.shape());
  const auto leading = [](const Tensor& x) { return Shape(std::span<const int64_t>(x.shape().begin(), size_t(x.rank() - 2))); };
  Shape shape = broadcast(leading(a), leading(b), "matmul");
  shape.append(a.shape()[a.rank() - 2]);
  shape.append(b.shape()[b.rank() - 1]);
  const Tensor y(shape, a.dtype(), a.device());
  multiply(y, a, b);
  return record("matmul", {a, b}, y, [a = save(a), b = save(b)](const Tensor& dy) -> Tensors {
    const auto product = [&dy](const Tensor& left, const Tensor& right, const Shape& target) {
      Shape full = dy.shape();
      full[dy.rank() - 2] = left.shape()[left.rank() - 2];
      full[dy.rank() - 1] = right.shape()[right.rank() - 1];
      Tensor out(full, dy.dtype(), dy.device());
      multiply(out, left, right);
      return sum_to(out, target);
    };
    Tensor da, db;
    if (needs_grad(0)) da = product(dy, transpose(*b), (*a).shape());
    if (needs_grad(1)) db = product(transpose(*a), dy, (*b).shape());
    return {da, db};
  });
}

static Tensor call(const Tensors& t) { return matmul(t[0], t[1]); }
static double flops(const Tensors& t, const Tensor& y) { return 2.0 * double(y.size()) * double(t[0].shape()[t[0].rank() - 1]); }
static Sample square(const char* tag, int64_t n) { return {tag, {{{n, n}}, {{n, n}}}, call}; }
static const RegisterOp register_matmul{{
    .name = "matmul",
    .samples = {{"small", {{{3, 4}}, {{4, 5}}}, call},
                {"odd", {{{17, 31}}, {{31, 33}}}, call},
                {"transposed", {{{4, 3}}, {{5, 4}}}, [](const Tensors& t) { return matmul(transpose(t[0]), transpose(t[1])); }},
                {"batch", {{{2, 3, 4}}, {{2, 4, 5}}}, call},
                {"one_for_all", {{{2, 3, 4}}, {{4, 5}}}, call},
                {"broadcast", {{{2, 1, 3, 4}}, {{3, 4, 2}}}, call},
                {"vectors", {{{1, 7}}, {{7, 1}}}, call},
                {"no_inner", {{{3, 0}}, {{0, 2}}}, call},
                {"empty", {{{0, 3}}, {{3, 2}}}, call},
                {"no_inner_blocks", {{{40, 0}}, {{0, 150}}}, call},
                {"no_rows", {{{0, 70}}, {{70, 150}}}, call},
                {"no_columns", {{{40, 70}}, {{70, 0}}}, call},
                {"no_inner_batch", {{{2, 3, 0}}, {{2, 0, 4}}}, call},
                {"no_batch", {{{0, 3, 4}}, {{0, 4, 5}}}, call},
                {"none_for_one", {{{0, 3, 4}}, {{4, 5}}}, call}},
    .workloads =
        {square("512", 512), square("1024", 1024), square("2048", 2048), {"32x256x256", {{{32, 256, 256}}, {{32, 256, 256}}}, call}},
    .invalid = {{"inner", {{{3, 4}}, {{5, 2}}}, call}, {"batch", {{{2, 3, 4}}, {{3, 4, 5}}}, call}, {"rank", {{{4}}, {{4, 5}}}, call}},
    .flops = flops,
    .tolerance = 4,
}};

}  // namespace ringtape
