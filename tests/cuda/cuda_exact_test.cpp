// Whole numbers, whose sums are exact in f32, give the CPU's results bit for bit in every dtype, wherever each operand
// lies and whatever ran before: it shows in 16 bits how a sum was added up and rounded.
#include <cmath>
#include <functional>

#include "autograd/create.h"
#include "autograd/ops.h"
#include "core/cuda/device.h"
#include "kernels/batch_norm.h"
#include "kernels/binary.h"
#include "kernels/combine.h"
#include "kernels/conv2d.h"
#include "kernels/fill.h"
#include "kernels/matmul.h"
#include "kernels/optimizer.h"
#include "kernels/reduce.h"
#include "kernels/unary.h"
#include "tests/support/conv_cases.h"
#include "tests/support/cuda_support.h"
#include "tests/support/cuda_tensors.h"
#include "tests/support/nearest.h"
#include "tests/support/support.h"

namespace ringtape {
namespace {

using test::kCuda;
using test::kFloats;
using test::noise;
using test::values;
using test::whole_numbers;

using CudaExact = test::OnCuda;

Tensor numbers(const Shape& shape, DType dtype, uint64_t seed) { return cast(whole_numbers(shape, seed), dtype); }

// Numbers of the same tests in every run.
struct Draw {
  uint64_t seed, count = 0;
  int64_t below(int64_t n) { return int64_t(philox(seed, 0, count++).x[0] % uint64_t(n)); }
};

void expect_same(const Tensor& got, const Tensor& want, const std::string& what) {
  EXPECT_TRUE(test::same_bytes(contiguous(to(got, Device{})), want)) << what;
}

// Products of one size that differ in one property of what is computed, in the order given and in the other one.
TEST_F(CudaExact, ProductsDifferInOneProperty) {
  for (const DType dtype : kFloats) {
    const auto x = [&](const Shape& shape, Device device, uint64_t seed, int64_t offset = 0) {
      return device == kCuda ? test::cuda(numbers(shape, dtype, seed), offset) : numbers(shape, dtype, seed);
    };
    using Product = std::function<Tensor(Device)>;
    const auto a = [&](Device d, int64_t offset = 0) { return x({2, 8, 8}, d, 1, offset); };
    const auto w = [&](Device d, int64_t offset = 0) { return x({2, 8, 8}, d, 2, offset); };
    const auto row = [&](Device d, int64_t offset = 0) { return x({8, 8}, d, 3, offset); };
    const auto bias = [&](Device d, int64_t offset = 0) { return x({8}, d, 4, offset); };
    const std::vector<std::pair<const char*, Product>> products = {
        {"plain", [&](Device d) { return matmul(a(d), w(d)); }},
        {"a transposed", [&](Device d) { return matmul(transpose(a(d)), w(d)); }},
        {"w transposed", [&](Device d) { return matmul(a(d), transpose(w(d))); }},
        {"both transposed", [&](Device d) { return matmul(transpose(a(d)), transpose(w(d))); }},
        {"rows of a apart",
         [&](Device d) {
           return matmul(slice(x({2, 8, 16}, d, 5), 2, 0, 8), w(d));
         }},
        {"rows of w apart",
         [&](Device d) {
           return matmul(a(d), slice(x({2, 8, 16}, d, 5), 2, 8, 16));
         }},
        {"matrices of a apart",
         [&](Device d) {
           return matmul(slice(x({2, 16, 8}, d, 6), 1, 8, 16), w(d));
         }},
        {"matrices of w apart",
         [&](Device d) {
           return matmul(a(d), slice(x({2, 16, 8}, d, 6), 1, 0, 8));
         }},
        {"one w",
         [&](Device d) {
           return matmul(transpose(a(d)), expand(reshape(row(d), {1, 8, 8}), {2, 8, 8}));
         }},
        {"a misaligned", [&](Device d) { return matmul(a(d, 1), w(d)); }},
        {"w misaligned", [&](Device d) { return matmul(a(d), w(d, 1)); }},
        {"a of half the alignment", [&](Device d) { return matmul(a(d, 4), w(d)); }},
        {"one matrix", [&](Device d) { return matmul(slice(a(d), 0, 0, 1), slice(w(d), 0, 1, 2)); }},
        {"fewer rows", [&](Device d) { return matmul(slice(a(d), 1, 0, 7), w(d)); }},
        {"fewer columns", [&](Device d) { return matmul(a(d), slice(w(d), 2, 0, 7)); }},
        {"less depth", [&](Device d) { return matmul(slice(a(d), 2, 0, 7), slice(w(d), 1, 0, 7)); }},
        {"linear", [&](Device d) { return linear(row(d), row(d), Tensor()); }},
        {"with a bias", [&](Device d) { return linear(row(d), row(d), bias(d)); }},
        {"with a misaligned bias", [&](Device d) { return linear(row(d), row(d), bias(d, 1)); }},
        {"with ReLU", [&](Device d) { return linear(row(d), row(d), Tensor(), Activation::relu); }},
        {"with both", [&](Device d) { return linear(row(d), row(d), bias(d), Activation::relu); }},
    };
    for (const bool reverse : {false, true})
      for (size_t i = 0; i < products.size(); ++i) {
        const auto& [name, product] = products[reverse ? products.size() - 1 - i : i];
        expect_same(product(kCuda), product(Device{}), concat(name, " in ", dtype));
      }
  }
}

// The same product to a result that is aligned, and to others that are less so.
TEST_F(CudaExact, ResultsOfProductsAtPlacesOfTheirOwn) {
  for (const DType dtype : kFloats) {
    const Tensor a = numbers({8, 8}, dtype, 1), w = numbers({8, 8}, dtype, 2), want = linear(a, w, Tensor());
    for (const int64_t offset : {0, 1, 2, 4, 0}) {
      const Tensor y = test::cuda(a, offset);
      linear_forward(y, to(a, kCuda), to(w, kCuda), View{}, Activation::none);
      expect_same(y, want, concat("offset ", offset, " in ", dtype));
    }
  }
}

TEST_F(CudaExact, SumsAndExtremes) {
  for (const DType dtype : kFloats)
    for (const auto& [shape, axes] : {std::pair<Shape, Axes>{{70001}, {0}},
                                      {{9, 4099}, {1}},
                                      {{4099, 9}, {0}},
                                      {{3000, 64}, {0}},
                                      {{64, 1024}, {1}},
                                      {{5, 70, 33}, {0, 2}}}) {
      const Tensor x = numbers(shape, dtype, 1), g = to(x, kCuda);
      const std::string what = concat(" of ", shape, " in ", dtype);
      expect_same(sum(g, axes), sum(x, axes), "sum" + what);
      expect_same(max(g, axes), max(x, axes), "max" + what);
      expect_same(min(g, axes), min(x, axes), "min" + what);
    }
}

// Any window: what one axis has is not what the other has.
TEST_F(CudaExact, ConvolutionsOfRandomWindows) {
  Draw draw{7};
  for (int i = 0; i < 24; ++i) {
    const auto up_to = [&](int64_t most) { return 1 + draw.below(most); };
    const Window window{up_to(3), up_to(3), draw.below(3), draw.below(3), up_to(3), up_to(3)};
    const int64_t groups = up_to(2), c = groups * up_to(9), k = groups * up_to(9), r = up_to(3), s = up_to(3);
    const Shape x_shape{up_to(3), 5 + draw.below(5), 5 + draw.below(5), c}, w_shape{k, r, s, c / groups};
    const int64_t rows = window.rows(x_shape[1], r), columns = window.columns(x_shape[2], s);
    if (rows < 1 || columns < 1) continue;
    for (const DType dtype : kFloats) {
      const test::conv::Data data{numbers(x_shape, dtype, 1), numbers(w_shape, dtype, 2), numbers({k}, dtype, 3),
                                  numbers({x_shape[0], rows, columns, k}, dtype, 4)};
      const auto placed = data.each([&](const Tensor& t) { return test::cuda(t, draw.below(9)); });
      const auto wide = data.each([](const Tensor& t) { return cast(t, DType::f64); });
      const test::conv::Result got = test::conv::run(window, placed), want = test::conv::run(window, wide);
      const std::string what = concat(" of ", x_shape, " by ", w_shape, " in ", dtype, ", window ", i);
      expect_same(got.y, cast(want.y, dtype), "y" + what);
      expect_same(got.dx, cast(want.dx, dtype), "dx" + what);
      expect_same(got.dw, cast(want.dw, dtype), "dw" + what);
    }
  }
}

// Each operand at a place of its own: a kernel may not take the alignment of one for that of all.
TEST_F(CudaExact, OperandsAtPlacesOfTheirOwn) {
  Draw draw{3};
  for (const DType dtype : kFloats)
    for (int i = 0; i < 12; ++i) {
      const int64_t n = 1 + draw.below(600);
      const auto place = [&](const Tensor& x) { return test::cuda(x, i == 0 ? 0 : draw.below(9)); };
      const Tensor a = numbers({n}, dtype, 1), b = numbers({n}, dtype, 2), c = numbers({n}, dtype, 3);
      const std::string what = concat(n, " in ", dtype, ", case ", i);
      const Tensor y = place(c), relued = place(c), combined = place(c);
      add_forward(y, place(a), place(b));
      expect_same(y, a + b, "a + b of " + what);
      relu_forward(relued, place(a));
      expect_same(relued, relu(a), "relu of " + what);
      const Tensor sources[] = {place(a), place(b), place(c)}, want = empty_like(a);
      Sources on_device{}, on_host{};
      for (const Tensor& each : sources) on_device.data[on_device.count++] = View(each).data;
      for (const Tensor* each : {&a, &b, &c}) on_host.data[on_host.count++] = View(*each).data;
      combine(combined, on_device, ReduceOp::sum, 1), combine(want, on_host, ReduceOp::sum, 1);
      expect_same(combined, want, "combine of " + what);
      const Tensor rows = numbers({3, n}, dtype, 4), total = place(numbers({1, n}, dtype, 5));
      sum_forward(total, place(rows));
      expect_same(total, sum(rows, {0}, true), "sum of columns of " + what);
      if (dtype != DType::f32 && dtype != DType::f64) continue;
      const Tensor p = place(a), m = place(b), host_p = a.copy_to(Device{}), host_m = b.copy_to(Device{});
      sgd_step(p, m, place(c), View{}, {0.5, 0.5, 0, false}), sgd_step(host_p, host_m, c, View{}, {0.5, 0.5, 0, false});
      expect_same(p, host_p, "sgd's weights of " + what), expect_same(m, host_m, "sgd's momenta of " + what);
    }
}

TEST_F(CudaExact, NanIsKept) {
  const double nan = std::nan("");
  for (const DType dtype : kFloats) {
    const Tensor a = cast(from_host(std::vector<double>{nan, 1, nan, -2, 0, 3, nan, 5}, {8, 1}), dtype),
                 b = cast(from_host(std::vector<double>{1, nan, nan, 4, 0, -3, 2, 5}, {8, 1}), dtype);
    for (const ReduceOp op : {ReduceOp::max, ReduceOp::min, ReduceOp::sum}) {
      const Tensor y = empty_like(to(a, kCuda)), ga = to(a, kCuda), gb = to(b, kCuda);
      Sources x{};
      x.count = 2, x.data[0] = View(ga).data, x.data[1] = View(gb).data;
      combine(y, x, op, 1);
      const std::vector<double> got = values(y);
      for (const size_t i : {0, 1, 2, 6}) EXPECT_TRUE(std::isnan(got[i])) << concat(op, " in ", dtype, ", ", i);
      for (const size_t i : {3, 4, 5, 7}) EXPECT_FALSE(std::isnan(got[i])) << concat(op, " in ", dtype, ", ", i);
    }
    const DType wide = dtype == DType::f64 ? DType::f64 : DType::f32;
    struct Normalised {
      Tensor y, mask;
    };
    const auto normalised = [&](Device device) {
      const Tensor x = to(a, device), mean = full({1}, 0, wide, device), one = full({1}, 1, wide, device);
      const Normalised out{empty_like(x), zeros({batch_norm_mask_bytes(8)}, DType::u8, device)};
      batch_norm_forward(out.y, out.mask, x, View{}, mean, one, one, mean, 0, Activation::relu);
      return out;
    };
    const Normalised got = normalised(kCuda), want = normalised(Device{});
    expect_same(got.mask, want.mask, concat("mask in ", dtype));
    for (size_t i = 0; i < 8; ++i)
      EXPECT_EQ(std::isnan(values(got.y)[i]), std::isnan(values(want.y)[i])) << concat(dtype, ", ", i);
  }
}

// Around a large mean, where the difference of two sums of squares would be nothing but rounding errors.
TEST_F(CudaExact, AVarianceAroundALargeMean) {
  for (const auto& [dtype, mean] :
       {std::pair{DType::f32, 4096.0}, {DType::f64, 1e8}, {DType::f16, 1024.0}, {DType::bf16, 128.0}})
    for (const int64_t rows : {64, 4096}) {
      const Tensor ones = cast(test::integers(rows * 16, 2, 1), DType::f64), two = full({1}, 2, DType::f64);
      const Tensor x = cast(reshape(ones * two, {rows, 16}) + full({1}, mean - 1, DType::f64), dtype);  // mean -+ 1
      const DType wide = dtype == DType::f64 ? DType::f64 : DType::f32;
      const Tensor m({16}, wide, kCuda), var({16}, wide, kCuda);
      const Tensor gx = to(x, kCuda);
      batch_norm_statistics(m, var, gx, {});
      const std::string what = concat("variance in ", dtype, ", ", rows, " rows");
      for (const double v : values(var)) EXPECT_NEAR(v, 1, 1 / std::sqrt(double(rows)) + 1e-3) << what;
      const Tensor want_m({16}, wide), want({16}, wide);
      batch_norm_statistics(want_m, want, x, {});
      test::expect_close(var, want, 1e-5, 1e-5, what);
      const auto normalised = [&](const Tensor& from, const Tensor& by_mean, const Tensor& by_var) {
        const Tensor y = empty_like(from), one = full({16}, 1, wide, from.device()), zero = empty_like(one);
        fill(zero, 0);
        batch_norm_forward(y, View{}, from, View{}, by_mean, by_var, one, zero, 0, Activation::none);
        return y;
      };
      const double tolerance = dtype == DType::f64 ? 1e-13 : dtype == DType::f32 ? 1e-6 : 1e-2;
      const Tensor on_host = normalised(x, to(m, Device{}), to(var, Device{}));
      test::expect_close(normalised(gx, m, var), on_host, tolerance, tolerance, "normalised, " + what);
    }
}

// Tensors of two devices that were made before: each call has to choose its device itself.
TEST_F(CudaExact, TwoDevicesInTurn) {
  if (cuda::device_count() < 2) GTEST_SKIP() << "needs two devices";
  struct Tensors {
    Tensor a, w, y, image, filter, out, total;
  };
  std::vector<Tensors> on;
  for (const int index : {0, 1}) {
    const Device d{DeviceType::cuda, index};
    on.push_back({to(numbers({16, 16}, DType::f32, 1), d), to(numbers({16, 16}, DType::f32, 2), d),
                  Tensor({16, 16}, DType::f32, d), to(numbers({1, 6, 6, 8}, DType::f32, 3), d),
                  to(numbers({8, 3, 3, 8}, DType::f32, 4), d), Tensor({1, 4, 4, 8}, DType::f32, d),
                  Tensor({1, 16}, DType::f32, d)});
  }
  const std::vector<std::function<void(const Tensors&)>> calls = {
      [](const Tensors& t) { add_forward(t.y, t.a, t.w); },
      [](const Tensors& t) { linear_forward(t.y, t.a, t.w, View{}, Activation::none); },
      [](const Tensors& t) { conv2d_forward(t.out, t.image, t.filter, View{}, square_window(1)); },
      [](const Tensors& t) { sum_forward(t.total, t.a); },
  };
  for (const auto& call : calls)
    for (const int index : {0, 1, 0, 1, 1, 0}) EXPECT_NO_THROW(call(on[size_t(index)])) << index;
  for (const Tensors& t : on) expect_same(t.total, sum(numbers({16, 16}, DType::f32, 1), {0}, true), "sum");
}

}  // namespace
}  // namespace ringtape
