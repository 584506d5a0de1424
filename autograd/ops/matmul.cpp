#include "kernels/matmul.h"

#include "autograd/ops/common.h"

namespace ringtape {
namespace {

// (..., rows, columns) as (B, rows, columns): a view if strides allow it.
Tensor as_batch(const Tensor& x, const Shape& lead, int64_t batch) {
  Shape full = lead;
  full.append(x.shape()[x.rank() - 2]);
  full.append(x.shape()[x.rank() - 1]);
  if (x.rank() == 2)  // one matrix for all: stride 0
    return x.window({batch, full[full.rank() - 2], full[full.rank() - 1]}, {0, x.strides()[0], x.strides()[1]});
  return reshape(x.shape() == full ? x.detach() : expand(x.detach(), full),
                 {batch, full[full.rank() - 2], full[full.rank() - 1]});
}

void multiply(const Tensor& y, const Tensor& a, const Tensor& b) {
  Shape lead;
  for (int i = 0; i + 2 < y.rank(); ++i) lead.append(y.shape()[i]);
  const int64_t batch = lead.size();
  matmul_forward(as_batch(y, lead, batch), as_batch(a, lead, batch), as_batch(b, lead, batch));
}

// x broadcast to the leading axes of `full`, with the `summed` ones moved into its rows: (batch, rows, columns), where
// batch has the other axes.
Tensor as_rows(const Tensor& x, const Shape& full, const std::vector<bool>& summed) {
  Shape shape = full, batches;
  std::vector<int> order, last;
  for (int i = 0; i < full.rank(); ++i) (i + 2 < full.rank() && !summed[size_t(i)] ? order : last).push_back(i);
  for (int i : order) batches.append(full[i]);
  order.insert(order.end(), last.begin(), last.end());
  shape[full.rank() - 2] = x.shape()[x.rank() - 2];
  shape[full.rank() - 1] = x.shape()[x.rank() - 1];
  int64_t rows = 1;
  for (int i : last) rows *= i == full.rank() - 1 ? 1 : shape[i];
  return reshape(permute(expand(x.detach(), shape), order), {batches.size(), rows, shape[full.rank() - 1]});
}

// The gradient of an operand of shape `target`: left^T right for left (..., q, p) and right (..., q, r), with leading
// axes as in `full`. It is summed over the axes along which the operand was broadcast, inside the product: with one
// rounding, and without more memory than the result.
Tensor gradient(const Tensor& left, const Tensor& right, const Shape& full, const Shape& target) {
  std::vector<bool> summed;
  for (int i = 0; i + 2 < full.rank(); ++i) {
    const int at = i - (full.rank() - target.rank());
    summed.push_back(full[i] != 1 && (at < 0 || target[at] == 1));
  }
  const Tensor y(target, left.dtype(), left.device());
  const auto seen_as = [&y](const Shape& shape) { return y.window(shape, contiguous_strides(shape)); };
  if (std::find(summed.begin(), summed.end(), true) == summed.end()) {
    Shape shape = full;
    for (int i = 1; i <= 2; ++i) shape[full.rank() - i] = target[target.rank() - i];
    multiply(seen_as(shape), transpose(left), right);
  } else {
    const Tensor a = as_rows(left, full, summed), b = as_rows(right, full, summed);
    matmul_forward(seen_as({a.shape()[0], a.shape()[2], b.shape()[2]}), transpose(a), b);
  }
  return y;
}

}  // namespace

Tensor matmul(const Tensor& a, const Tensor& b) {
  if (const CastTo to = autocast("matmul", a, b)) return matmul(to(a), to(b));
  check_float(a, "matmul");
  check_same(a, b, "matmul");
  RT_CHECK_AS(ShapeError,
              a.rank() >= 1 && b.rank() >= 1 && a.shape()[a.rank() - 1] == b.shape()[std::max(b.rank() - 2, 0)],
              "matmul: expected (..., m, k) or (k), and (..., k, n) or (k), got ", a.shape(), " and ", b.shape());
  if (a.rank() == 1 || b.rank() == 1) {  // a vector is a row in front, a column behind, an axis that the result lacks
    const Tensor rows = a.rank() == 1 ? reshape(a, {1, a.size()}) : a,
                 columns = b.rank() == 1 ? reshape(b, {b.size(), 1}) : b, y = matmul(rows, columns);
    const Shape shape = a.rank() == 1 ? y.shape().without(y.rank() - 2) : y.shape();
    return reshape(y, b.rank() == 1 ? shape.without(shape.rank() - 1) : shape);
  }
  const auto leading = [](const Tensor& x) {
    return Shape(std::span<const int64_t>(x.shape().begin(), size_t(x.rank() - 2)));
  };
  Shape shape = broadcast(leading(a), leading(b), "matmul");
  shape.append(a.shape()[a.rank() - 2]);
  shape.append(b.shape()[b.rank() - 1]);
  const Tensor y(shape, a.dtype(), a.device());
  multiply(y, a, b);
  return record("matmul", {a, b}, y, [a = save(a), b = save(b)](const Tensor& dy) -> Tensors {
    Tensor da, db;
    if (needs_grad(0)) da = gradient(transpose(dy), transpose(*b), dy.shape(), (*a).shape());
    if (needs_grad(1)) db = gradient(*a, dy, dy.shape(), (*b).shape());
    return {da, db};
  });
}

static Tensor call_matmul(const Tensors& t) { return matmul(t[0], t[1]); }
static double matmul_flops(const Tensors& t, const Tensor& y) {
  return 2.0 * double(y.size()) * double(t[0].shape()[t[0].rank() - 1]);
}
static const RegisterOp register_matmul{{
    .name = "matmul",
    .samples = {{"small", {{{3, 4}}, {{4, 5}}}, call_matmul},
                {"odd", {{{17, 31}}, {{31, 33}}}, call_matmul},
                {"transposed",
                 {{{4, 3}}, {{5, 4}}},
                 [](const Tensors& t) { return matmul(transpose(t[0]), transpose(t[1])); }},
                {"batch", {{{2, 3, 4}}, {{2, 4, 5}}}, call_matmul},
                {"one_for_all", {{{2, 3, 4}}, {{4, 5}}}, call_matmul},
                {"broadcast", {{{2, 1, 3, 4}}, {{3, 4, 2}}}, call_matmul},
                {"one_of_each", {{{2, 1, 3, 4}}, {{1, 3, 4, 5}}}, call_matmul},
                {"between", {{{2, 3, 2, 4, 3}}, {{3, 1, 3, 2}}}, call_matmul},
                {"one_in_front", {{{1, 3, 4}}, {{4, 2}}}, call_matmul},
                {"of_one", {{{3, 4}}, {{2, 4, 5}}}, call_matmul},
                {"vectors", {{{1, 7}}, {{7, 1}}}, call_matmul},
                {"dot", {{{7}}, {{7}}}, call_matmul},
                {"matrix_vector", {{{3, 7}}, {{7}}}, call_matmul},
                {"vector_matrices", {{{4}}, {{2, 4, 5}}}, call_matmul},
                {"matrices_vector", {{{2, 3, 4}}, {{4}}}, call_matmul},
                {"no_inner", {{{3, 0}}, {{0, 2}}}, call_matmul},
                {"empty", {{{0, 3}}, {{3, 2}}}, call_matmul},
                {"no_inner_blocks", {{{40, 0}}, {{0, 150}}}, call_matmul},
                {"no_rows", {{{0, 70}}, {{70, 150}}}, call_matmul},
                {"no_columns", {{{40, 70}}, {{70, 0}}}, call_matmul},
                {"no_inner_batch", {{{2, 3, 0}}, {{2, 0, 4}}}, call_matmul},
                {"no_batch", {{{0, 3, 4}}, {{0, 4, 5}}}, call_matmul},
                {"none_for_one", {{{0, 3, 4}}, {{4, 5}}}, call_matmul}},
    .workloads = {{"512", {{{512, 512}}, {{512, 512}}}, call_matmul},
                  {"1024", {{{1024, 1024}}, {{1024, 1024}}}, call_matmul},
                  {"2048", {{{2048, 2048}}, {{2048, 2048}}}, call_matmul},
                  {"32x256x256", {{{32, 256, 256}}, {{32, 256, 256}}}, call_matmul},
                  {"4096x4096_vector", {{{4096, 4096}}, {{4096}}}, call_matmul}},
    .invalid = {{"inner", {{{3, 4}}, {{5, 2}}}, call_matmul},
                {"batch", {{{2, 3, 4}}, {{3, 4, 5}}}, call_matmul},
                {"vector", {{{3, 4}}, {{3}}}, call_matmul},
                {"rank", {{{}}, {{4, 5}}}, call_matmul}},
    .flops = matmul_flops,
    .tolerance = 4,
}};

}  // namespace ringtape
