// What the samples of the ops' records are too small to reach in the kernels that reduce and that work by rows: rows of
// every length and alignment, sums split among blocks, strides, NaN and infinity, labels out of range.
#include <cmath>
#include <limits>

#include "autograd/create.h"
#include "autograd/ops.h"
#include "kernels/cross_entropy.h"
#include "kernels/fill.h"
#include "kernels/l2_normalize.h"
#include "kernels/reduce.h"
#include "kernels/softmax.h"
#include "kernels/topk.h"
#include "tests/support/cuda_support.h"
#include "tests/support/cuda_tensors.h"
#include "tests/support/support.h"

namespace ringtape {
namespace {

using test::cuda;
using test::expect_close;
using test::integers;
using test::kCuda;
using test::kFloats;
using test::noise;
using test::values;

constexpr double kInf = std::numeric_limits<double>::infinity(), kNan = std::numeric_limits<double>::quiet_NaN();

using CudaRows = test::OnCuda;
using CudaReduce = test::OnCuda;

double epsilon(DType dtype) {
  return dtype == DType::f64 ? 0x1p-52 : dtype == DType::f32 ? 0x1p-23 : dtype == DType::f16 ? 0x1p-10 : 0x1p-7;
}
DType compute_dtype(DType dtype) { return dtype == DType::f64 ? DType::f64 : DType::f32; }

Tensor numbers(const std::vector<double>& values, const Shape& shape, DType dtype) {
  return cast(from_host(values, shape), dtype);
}

// What the row kernels make of logits and of a gradient, on their device.
struct RowResults {
  std::vector<std::pair<const char*, Tensor>> all;
};
RowResults run_rows(const Tensor& x, const Tensor& g, const Tensor& labels, bool all = true) {
  RowResults results;
  const auto add = [&](const char* name, const Tensor& y) { results.all.emplace_back(name, y); };
  const auto forward = [&](const char* name, auto& kernel, auto& backward) {
    Tensor y = empty_like(x), dx = empty_like(x);
    kernel(y, x);
    add(name, y);
    backward(dx, y, g);
    add(name, dx);
  };
  forward("softmax", softmax_forward, softmax_backward);
  forward("log_softmax", log_softmax_forward, log_softmax_backward);

  Tensor unit = empty_like(x), dx = empty_like(x),
         norm({x.shape()[1] ? x.shape()[0] : 0}, compute_dtype(x.dtype()), x.device());
  l2_normalize_forward(unit, norm, x, 1e-12);
  add("l2_normalize", unit);
  add("norm", norm);
  l2_normalize_backward(dx, unit, norm, g, 1e-12);
  add("l2_normalize dx", dx);
  if (!all) return results;

  const Shape n{x.shape()[0]};
  Tensor rank(n, DType::i64, x.device());
  label_rank(rank, x, labels);
  add("label_rank", rank);
  for (double smoothing : {0.0, 0.1}) {
    Tensor loss({2, x.shape()[0]}, compute_dtype(x.dtype()), x.device()),
        norms({x.shape()[0], 2}, loss.dtype(), x.device()), dlogits = empty_like(x);
    const CrossEntropyRule rule{.smoothing = smoothing, .scale = 0.25};
    cross_entropy_forward(loss, norms, x, labels, {}, rule);
    add("loss", loss);
    add("norms", norms);
    cross_entropy_backward(dlogits, x, norms, labels, {}, cast(labels, loss.dtype()) + 1, {}, rule);
    add("dlogits", dlogits);
  }
  return results;
}
void expect_same(const RowResults& got, const RowResults& want, double tolerance, const std::string& where) {
  for (size_t i = 0; i < want.all.size(); ++i)
    expect_close(got.all[i].second, want.all[i].second, tolerance, tolerance, where + " " + want.all[i].first);
}

void compare_rows(DType dtype, int64_t rows, int64_t columns, int64_t offset) {
  const Tensor x = noise({rows, columns}, dtype, 1), g = noise({rows, columns}, dtype, 2);
  const Tensor labels = integers(rows, std::max<int64_t>(columns, 1), 3);
  const double tolerance = 8 * epsilon(dtype) * (1 + std::sqrt(double(columns)) / 8);
  expect_same(run_rows(cuda(x, offset), cuda(g, offset), cuda(labels), columns > 0),
              run_rows(x, g, labels, columns > 0), tolerance,
              std::string(name_of(dtype)) + " " + x.shape().str() + " at " + std::to_string(offset));
}

TEST_F(CudaRows, EveryLength) {
  for (DType dtype : kFloats)
    for (int64_t columns : {1, 2, 7, 10, 31, 32, 33, 128, 255, 256, 257, 1000, 1025})
      compare_rows(dtype, 9, columns, 0);
}

TEST_F(CudaRows, MisalignedAndEmpty) {
  for (DType dtype : kFloats) {
    compare_rows(dtype, 5, 64, 1);
    compare_rows(dtype, 300, 10, 3);
    compare_rows(dtype, 0, 10, 0);
    compare_rows(dtype, 4, 0, 0);
  }
}

// 8,192 elements of two operands in f32 fit the registers of a block's threads, or 32,768 of one in a 16-bit type; one
// element at a time, a quarter or an eighth of it.
TEST_F(CudaRows, LongerThanTheRegistersHold) {
  for (DType dtype : kFloats)
    for (int64_t columns : {5001, 8192, 8193, 8200, 33000}) compare_rows(dtype, 2, columns, 0);
}

TEST_F(CudaRows, NanAndInfinity) {
  const std::vector<double> x = {1,     kNan,  2,     -kInf, 1, kInf, 2,    3,     -kInf, -kInf,
                                 -kInf, -kInf, -kInf, 1,     2, 3,    1e30, -1e30, 0,     1};
  for (DType dtype : {DType::f32, DType::f64, DType::bf16}) {
    const Tensor logits = numbers(x, {5, 4}, dtype), g = noise({5, 4}, dtype, 2), labels = integers(5, 4, 1);
    expect_same(run_rows(cuda(logits), cuda(g), cuda(labels)), run_rows(logits, g, labels), 8 * epsilon(dtype),
                std::string(name_of(dtype)));
  }
}

TEST_F(CudaRows, AShortVectorIsDividedByEps) {
  const Tensor x = numbers({0, 0, 0, 0.25, 0, 0}, {2, 3}, DType::f32), g = noise({2, 3}, DType::f32, 2);
  for (Device device : {Device{}, kCuda}) {
    Tensor y({2, 3}, DType::f32, device), dx = empty_like(y), norm({2}, DType::f32, device);
    l2_normalize_forward(y, norm, x.copy_to(device), 0.5);
    l2_normalize_backward(dx, y, norm, g.copy_to(device), 0.5);
    EXPECT_EQ(values(y), (std::vector<double>{0, 0, 0, 0.5, 0, 0}));
    expect_close(dx, mul(g, full({1}, 2)), 0, 0, device.str());
  }
}

TEST_F(CudaRows, ALabelOutOfRange) {
  const Tensor x = noise({4, 5}, DType::f32, 1);
  const Tensor labels = from_host(std::vector<int64_t>{2, -1, 5, 4}, {4});
  Tensor loss({2, 4}, DType::f32, kCuda), norms({4, 2}, DType::f32, kCuda), dx({4, 5}, DType::f32, kCuda),
      rank({4}, DType::i64, kCuda);
  label_rank(rank, cuda(x), cuda(labels));
  cross_entropy_forward(loss, norms, cuda(x), cuda(labels), {}, {.smoothing = 0.1});
  const std::vector<double> l = values(loss), r = values(rank);
  EXPECT_FALSE(std::isnan(l[0]) || std::isnan(l[3]));
  EXPECT_TRUE(std::isnan(l[1]) && std::isnan(l[2]));
  EXPECT_EQ(r[1], 5);
  EXPECT_EQ(r[2], 5);
  EXPECT_LT(r[0], 5);
  // No column is the label's: the gradient of a row sums to what the label's own would have taken away.
  const Tensor one = full({1}, 1, DType::f32, kCuda).window({4}, {0});
  cross_entropy_backward(dx, cuda(x), norms, cuda(labels), {}, one, {}, {.smoothing = 0.1});
  const std::vector<double> d = values(dx);
  for (int row = 0; row < 4; ++row) {
    double sum = 0;
    for (int c = 0; c < 5; ++c) sum += d[size_t(row * 5 + c)];
    EXPECT_NEAR(sum, row == 1 || row == 2 ? 0.9 : 0, 1e-6) << row;
  }
}

TEST_F(CudaRows, EqualScoresAtALowerIndexBeat) {
  const Tensor scores = numbers({3, 3, 3, 3, 1, kNan, 1, 0, kNan, 0, 1, 2}, {3, 4}, DType::f16);
  const Tensor labels = from_host(std::vector<int64_t>{2, 2, 0}, {3});
  Tensor rank({3}, DType::i64, kCuda);
  label_rank(rank, cuda(scores), cuda(labels));
  EXPECT_EQ(values(rank), (std::vector<double>{2, 1, 4}));
}

TEST_F(CudaRows, CrossEntropyTakesLossGradientsInF32AndF64Alone) {
  const Tensor x = noise({2, 3}, DType::bf16, 1), labels = integers(2, 3, 1), norms = full({2, 2}, 2);
  Tensor dx = empty_like(x);
  cross_entropy_backward(dx, x, norms, labels, {}, full({2}, 0.5, DType::f64), {}, {});
  Tensor got({2, 3}, DType::bf16, kCuda);
  cross_entropy_backward(got, cuda(x), cuda(norms), cuda(labels), {}, full({2}, 0.5, DType::f64, kCuda), {}, {});
  expect_close(got, dx, epsilon(DType::bf16), 1e-6, "dloss in f64");
  const Tensor narrow = full({2}, 0.5, DType::bf16, kCuda);
  EXPECT_THROW(cross_entropy_backward(got, cuda(x), cuda(norms), cuda(labels), {}, narrow, {}, {}), DTypeError);
}

using Layout = Tensor (*)(const Tensor&);
struct Case {
  Shape shape;            // of the tensor that `layout` is applied to
  std::vector<int> axes;  // reduced
  Layout layout = [](const Tensor& x) { return x; };
};

// What the reductions make of x, on its device.
RowResults run_reductions(const Tensor& x, const std::vector<int>& axes) {
  Shape shape = x.shape();
  for (int axis : axes) shape = shape.with(axis, 1);
  RowResults results;
  const auto add = [&](const char* name, const Tensor& y) { results.all.emplace_back(name, y); };
  const auto y = [&] { return Tensor(shape, x.dtype(), x.device()); };
  const Tensor sum = y(), mean = y(), top = y(), lse = y(), var = y(), center = y();
  const Tensor dx(x.shape(), x.dtype(), x.device()), dl = empty_like(dx), dv = empty_like(dx);
  sum_forward(sum, x);
  mean_forward(mean, x);
  max_forward(top, x);
  const Tensor shift(shape, compute_dtype(x.dtype()), x.device()), log_sum = empty_like(shift);
  logsumexp_forward(lse, shift, log_sum, x);
  var_forward(var, center, x, 1);
  max_backward(dx, x, top, lse);
  logsumexp_backward(dl, x, shift, log_sum, top);
  var_backward(dv, x, center, top, 0.125);
  add("sum", sum), add("mean", mean), add("max", top), add("logsumexp", lse), add("var", var), add("center", center);
  add("max dx", dx), add("logsumexp dx", dl), add("var dx", dv);
  const Tensor low = y(), dm = empty_like(dx), product = y(), norm = y();
  min_forward(low, x);
  min_backward(dm, x, low, lse);
  add("min", low), add("min dx", dm);
  if (size_of(x.dtype()) > 2) {
    prod_forward(product, x), norm_forward(norm, x);
    add("prod", product), add("norm", norm);
  }
  return results;
}

RowResults run_whole_reductions(const Tensor& x, const std::vector<int>& axes) {
  RowResults results;
  const auto add = [&](const char* name, const auto& forward) {
    Shape shape = x.shape();
    for (int axis : axes) shape = shape.with(axis, 1);
    const Tensor y(shape, DType::i64, x.device());
    forward(y, x);
    results.all.emplace_back(name, y);
  };
  add("sum", sum_forward), add("prod", prod_forward), add("max", max_forward), add("min", min_forward);
  return results;
}

void compare_reductions(DType dtype, const Case& c) {
  const Tensor host = noise(c.shape, dtype, 5);
  const Tensor x = c.layout(host), y = c.layout(cuda(host));
  double n = 1;
  for (int axis : c.axes) n *= double(x.shape()[axis]);
  const double tolerance = 8 * epsilon(dtype) * (1 + std::sqrt(n) / 4);
  std::string where = std::string(name_of(dtype)) + " " + c.shape.str() + " over";
  for (int axis : c.axes) where += " " + std::to_string(axis);
  expect_same(run_reductions(y, c.axes), run_reductions(x, c.axes), tolerance, where);
  if (dtype != DType::f32) return;
  const Tensor whole = integers(host.size(), 1000, 7);
  const auto laid_out = [&](const Tensor& t) { return c.layout(reshape(t, c.shape)); };
  expect_same(run_whole_reductions(laid_out(cuda(whole)), c.axes), run_whole_reductions(laid_out(whole), c.axes), 0,
              where + ", whole");
}

TEST_F(CudaReduce, RowsOfEveryLength) {
  for (DType dtype : kFloats)
    for (int64_t n : {1, 2, 3, 31, 33, 64, 255, 257, 1000, 1025, 2056}) compare_reductions(dtype, {{7, n}, {1}});
}

TEST_F(CudaReduce, ColumnsOfEveryWidth) {
  for (DType dtype : kFloats)
    for (int64_t n : {1, 2, 3, 8, 31, 33, 255, 257, 1000}) {
      compare_reductions(dtype, {{5, n}, {0}});
      compare_reductions(dtype, {{67, n}, {0}});
    }
}

TEST_F(CudaReduce, AxesInTheMiddleAndSeveral) {
  for (DType dtype : kFloats) {
    compare_reductions(dtype, {{3, 40, 16}, {1}});
    compare_reductions(dtype, {{3, 40, 5}, {1}});
    compare_reductions(dtype, {{6, 5, 8}, {0, 2}});
    compare_reductions(dtype, {{6, 5, 7}, {0, 2}});
    compare_reductions(dtype, {{2, 3, 4, 5, 6}, {1, 3}});
    compare_reductions(dtype, {{4, 1, 6}, {1}});
    compare_reductions(dtype, {{300, 2}, {1}});
  }
}

// A block takes 8,192 elements of an output at least, or 512 rows of 8,192 columns and fewer.
TEST_F(CudaReduce, SplitAmongBlocks) {
  for (DType dtype : kFloats) {
    compare_reductions(dtype, {{70001}, {0}});
    compare_reductions(dtype, {{70000}, {0}});  // in packs
    compare_reductions(dtype, {{2, 65536}, {1}});
    compare_reductions(dtype, {{9001, 3}, {0}});
    compare_reductions(dtype, {{1031, 64}, {0}});
  }
}

TEST_F(CudaReduce, ManySplits) {  // combined by a block rather than a warp, and by a part of one
  compare_reductions(DType::f32, {{700003}, {0}});
  compare_reductions(DType::f32, {{300000, 1, 2}, {0}});
}

TEST_F(CudaReduce, AnyStrides) {
  const Layout transposed = [](const Tensor& x) { return permute(x, {1, 0}); };
  const Layout every_other = [](const Tensor& x) { return slice(x, 1, 1, x.shape()[1], 2); };
  const Layout inner = [](const Tensor& x) { return slice(x, 1, 4, 36); };
  const Layout odd_rows = [](const Tensor& x) { return slice(x, 1, 0, 32); };  // only the first row is aligned
  const Layout repeated = [](const Tensor& x) { return expand(x, {x.shape()[0], 70}); };
  const Layout nchw = [](const Tensor& x) { return permute(x, {0, 3, 1, 2}); };
  for (DType dtype : {DType::f32, DType::bf16}) {
    for (int axis : {0, 1}) {
      compare_reductions(dtype, {{40, 72}, {axis}, transposed});
      compare_reductions(dtype, {{40, 72}, {axis}, every_other});
      compare_reductions(dtype, {{40, 72}, {axis}, inner});
      compare_reductions(dtype, {{40, 1}, {axis}, repeated});
    }
    compare_reductions(dtype, {{40, 72}, {0, 1}, transposed});
    for (const std::vector<int>& axes : {std::vector{0}, std::vector{1}, std::vector{0, 1}})
      compare_reductions(dtype, {{6, 37}, axes, odd_rows});
    compare_reductions(dtype, {{3, 5, 7, 16}, {0, 2, 3}, nchw});
    compare_reductions(dtype, {{3, 5, 7, 16}, {1}, nchw});
    compare_reductions(dtype, {{3, 5, 7, 16}, {0, 2}, nchw});
  }
}

TEST_F(CudaReduce, OverNothingAndToNothing) {
  for (DType dtype : kFloats) {
    compare_reductions(dtype, {{3, 0}, {1}});
    compare_reductions(dtype, {{0, 3}, {0}});
    compare_reductions(dtype, {{0, 3}, {1}});
    compare_reductions(dtype, {{}, {}});
    compare_reductions(dtype, {{5, 6}, {}});
  }
}

TEST_F(CudaReduce, NanInfinityAndTies) {
  const std::vector<double> x = {1,     kNan, 2,    3,    -kInf, -kInf, -kInf, -kInf, 2, 5, 5, 5,
                                 -kInf, 1,    -800, -900, kInf,  1,     kInf,  2,     0, 0, 0, -1};
  for (DType dtype : {DType::f32, DType::f64, DType::bf16})
    for (const Shape& shape : {Shape{6, 4}, Shape{24, 1}, Shape{2, 12}}) {
      const Tensor rows = numbers(x, shape, dtype);
      Shape reduced = shape.with(1, 1);
      Tensor top(reduced, dtype), lse = empty_like(top), dx(shape, dtype);
      Tensor got(reduced, dtype, kCuda), got_lse = empty_like(got), got_dx(shape, dtype, kCuda);
      const Tensor dy = full(reduced, 3, dtype);
      const Tensor shift(reduced, compute_dtype(dtype)), log_sum = empty_like(shift);
      const Tensor got_shift(reduced, shift.dtype(), kCuda), got_log_sum = empty_like(got_shift);
      max_forward(top, rows), logsumexp_forward(lse, shift, log_sum, rows), max_backward(dx, rows, top, dy);
      max_forward(got, cuda(rows)), logsumexp_forward(got_lse, got_shift, got_log_sum, cuda(rows)),
          max_backward(got_dx, cuda(rows), got, cuda(dy));
      expect_close(got, top, 0, 0, "max");
      expect_close(got_lse, lse, 4 * epsilon(dtype), 4 * epsilon(dtype), "logsumexp");
      expect_close(got_dx, dx, 4 * epsilon(dtype), 0, "max dx");
    }
}

}  // namespace
}  // namespace ringtape
