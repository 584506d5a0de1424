// Normalisation and losses on CUDA beside the CPU, for each length of row, layout and dtype that has a kernel of its
// own.
#include <cmath>
#include <functional>
#include <vector>

#include "autograd/tape.h"
#include "tests/support/cuda_tensors.h"

namespace ringtape {
namespace {

using test::expect_close;
using test::kCuda;
using test::kFloats;
using test::noise;
using Call = std::function<Tensor(const Tensors&)>;
using Layout = Tensor (*)(const Tensor&);

double epsilon_of(DType dtype) {
  return dtype == DType::f64 ? 0x1p-45 : dtype == DType::f32 ? 0x1p-20 : dtype == DType::f16 ? 0x1p-9 : 0x1p-7;
}
DType wide_dtype(DType dtype) { return dtype == DType::f64 ? DType::f64 : DType::f32; }

// Up to what the registers of a block do not hold (kernels/cuda/rows.cuh).
std::vector<int64_t> lengths(DType dtype) {
  std::vector<int64_t> all{1, 7, 33, 256, 257, 1000, 5001};
  if (dtype != DType::f64) all.insert(all.end(), {8192, 8193, dtype == DType::f32 ? 16400 : 33000});
  return all;
}

Tensor same(const Tensor& x) { return x; }
Tensor transposed(const Tensor& x) { return transpose(contiguous(transpose(x))); }
Tensor shifted(const Tensor& x) {  // not aligned to packs
  const Tensor all = concat({zeros({1}, x.dtype(), x.device()), reshape(x, {x.size()})});
  return all.window(x.shape(), contiguous_strides(x.shape()), 1);
}

// The value and the gradients of floating inputs, on their device.
Tensors run(const Call& f, const Tensors& inputs, Device device, Layout layout) {
  Tensors leaves;
  for (const Tensor& x : inputs) leaves.push_back(is_float(x.dtype()) ? leaf(layout(to(x, device))) : to(x, device));
  const Tensor y = f(leaves);
  backward(y, to(noise(y.shape(), y.dtype(), 99), device));
  Tensors out{y.detach()};
  for (const Tensor& x : leaves)
    if (requires_grad(x)) out.push_back(grad(x));
  return out;
}
void compare(const Call& f, const Tensors& inputs, double tolerance, Layout layout = same) {
  const Tensors want = run(f, inputs, Device{}, layout), got = run(f, inputs, kCuda, layout);
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) expect_close(got[i], want[i], tolerance, tolerance, concat("result ", i));
}

class CudaNorms : public test::OnCuda {};
class CudaLosses : public test::OnCuda {};

TEST_F(CudaNorms, OfRowsOfEveryLength) {
  for (DType dtype : kFloats)
    for (int64_t n : lengths(dtype)) {
      SCOPED_TRACE(concat(dtype, " ", n));
      const double tolerance = epsilon_of(dtype) * (1 + std::sqrt(double(n)) / 8);
      const Tensor x = noise({2, n}, dtype, 1), w = noise({n}, wide_dtype(dtype), 2), b = noise({n}, w.dtype(), 3);
      compare([](const Tensors& t) { return layer_norm(t[0], t[1], t[2], 1e-3); }, {x, w, b}, tolerance);
      if (n > 300) continue;
      compare([](const Tensors& t) { return layer_norm(t[0], {}, {}, 1e-3); }, {x}, tolerance);
      compare([](const Tensors& t) { return rms_norm(t[0], t[1], 1e-3); }, {x, w}, tolerance);
    }
}

TEST_F(CudaNorms, OfManyRows) {
  for (DType dtype : kFloats) {
    const Tensor x = noise({700, 10}, dtype, 1), w = noise({10}, wide_dtype(dtype), 2), b = noise({10}, w.dtype(), 3);
    compare([](const Tensors& t) { return layer_norm(t[0], t[1], t[2], 1e-3); }, {x, w, b}, 64 * epsilon_of(dtype));
  }
}

TEST_F(CudaNorms, OfGroups) {
  struct Case {
    Shape shape;
    int64_t groups;
  };
  for (DType dtype : kFloats)
    for (const Case& c : {Case{{2, 3, 5, 6}, 3},
                          {{2, 40, 7}, 7},
                          {{2, 40, 16}, 16},
                          {{2, 40, 16}, 2},
                          {{3, 17, 24}, 1},
                          {{1, 2100, 8}, 8},
                          {{1, 2100, 8}, 1},
                          {{1, 4200, 3}, 3},
                          {{1, 4200, 3}, 1},
                          {{5, 12}, 3},
                          {{1, 1, 16400}, 1},
                          {{1, 1, 16401}, 1},
                          {{1, 2, 8200}, 2}}) {
      SCOPED_TRACE(concat(dtype, " ", c.shape, " ", c.groups));
      const double n = double(c.shape.size() / c.groups), tolerance = epsilon_of(dtype) * (4 + std::sqrt(n) / 4);
      const int64_t channels = c.shape[c.shape.rank() - 1];
      const Tensor x = noise(c.shape, dtype, 1), w = noise({channels}, wide_dtype(dtype), 2),
                   b = noise({channels}, w.dtype(), 3);
      compare([&](const Tensors& t) { return group_norm(t[0], c.groups, t[1], t[2], 1e-3); }, {x, w, b}, tolerance);
      compare([&](const Tensors& t) { return group_norm(t[0], c.groups, {}, {}, 1e-3); }, {x}, tolerance);
    }
}

TEST_F(CudaNorms, AroundALargeMean) {
  const Tensor x = noise({5, 300}, DType::f32, 1, 1e5, 1e5 + 100);
  compare([](const Tensors& t) { return layer_norm(t[0]); }, {x}, 1e-5);
  for (const Tensor& y :
       {layer_norm(full({3, 18}, 0.1, DType::f32, kCuda)), group_norm(full({3, 5, 18}, 1e8, DType::f32, kCuda), 3)})
    expect_close(y, zeros(y.shape()), 0, 0, "equal numbers");
}

TEST_F(CudaLosses, OfClasses) {
  for (DType dtype : kFloats)
    for (int64_t n : lengths(dtype)) {
      SCOPED_TRACE(concat(dtype, " ", n));
      const double tolerance = epsilon_of(dtype) * (1 + std::sqrt(double(n)) / 8);
      const Tensor x = noise({3, n}, dtype, 1, -3, 3), q = noise({3, n}, dtype, 2, 0, 1);
      const Tensor labels = cast(noise({3}, DType::f64, 3, 0, double(n)), DType::i64);
      const Tensor weight = noise({n}, wide_dtype(dtype), 4, 0, 2);
      const auto options = [&](const Tensor& like, LossReduction r) {
        return CrossEntropyOptions{.label_smoothing = 0.1, .weight = to(weight, like.device()), .reduction = r};
      };
      // The losses of soft targets, which are sums over the classes, have their size.
      compare([&](const Tensors& t) { return cross_entropy(t[0], t[1], options(t[0], LossReduction::mean)); },
              {x, labels}, tolerance);
      compare([&](const Tensors& t) { return cross_entropy(t[0], t[1], options(t[0], LossReduction::none)); }, {x, q},
              tolerance * 4);
      const auto ignored = int64_t(test::values(labels)[1]);
      compare([&](const Tensors& t) { return nll_loss(t[0], t[1], {.ignore_index = ignored}); }, {x, labels},
              tolerance);
    }
}

// The distance of two logits may be larger than any number, and the weighted loss not.
TEST_F(CudaLosses, OfTheLargestNumbers) {
  for (DType dtype : {DType::f32, DType::f64, DType::bf16}) {
    const double top = dtype == DType::f64 ? 1.7e308 : 3e38;
    const Tensor x = cast(from_host(std::vector<double>{top, -top, 0, -top, top, top}, {2, 3}), dtype);
    const Tensor labels = from_host(std::vector<int64_t>{1, 0}, {2}), weight = full({3}, 0.125, wide_dtype(dtype));
    for (const double smoothing : {0.0, 0.25})
      compare(
          [&](const Tensors& t) {
            return cross_entropy(
                t[0], t[1],
                {.label_smoothing = smoothing, .weight = to(weight, t[0].device()), .reduction = LossReduction::none});
          },
          {x, labels}, 1e-6);
  }
}

// The mean of many losses takes several blocks.
TEST_F(CudaLosses, OfManySamples) {
  for (DType dtype : {DType::f32, DType::f64}) {
    const Tensor x = noise({9000, 3}, dtype, 1), labels = cast(noise({9000}, DType::f64, 3, 0, 3), DType::i64);
    compare([](const Tensors& t) { return cross_entropy(t[0], t[1], {.ignore_index = 2}); }, {x, labels}, 1e-5);
  }
}

// More candidates than a block goes over, alone and among others; no size is a whole number of tiles.
TEST_F(CudaLosses, OfManyPairs) {
  for (DType dtype : {DType::f32, DType::f64}) {
    const Tensor q = noise({150, 70}, dtype, 1, -1, 1), k = noise({333, 70}, dtype, 2, -1, 1);
    const double tolerance = 16 * epsilon_of(dtype);
    compare([](const Tensors& t) { return nt_xent(t[0], t[0], 0, 0.5); }, {q}, tolerance);
    compare([](const Tensors& t) { return nt_xent(t[0], t[1], 131, 0.5); }, {q, k}, tolerance);
  }
}

TEST_F(CudaLosses, OfElements) {
  using Loss = std::function<Tensor(const Tensor&, const Tensor&, LossReduction)>;
  const Loss losses[] = {
      [](auto& x, auto& t, auto r) { return mse_loss(x, t, r); },
      [](auto& x, auto& t, auto r) { return l1_loss(x, t, r); },
      [](auto& x, auto& t, auto r) { return smooth_l1_loss(x, t, 0.5, r); },
      [](auto& x, auto& t, auto r) { return huber_loss(x, t, 0.5, r); },
      [](auto& x, auto& t, auto r) { return binary_cross_entropy_with_logits(x, t, {.reduction = r}); },
      [](auto& x, auto& t, auto r) { return kl_div(x, t, {.reduction = r}); },
      [](auto& x, auto& t, auto r) { return kl_div(x, t, {.log_target = true, .reduction = r}); },
      [](auto& x, auto& t, auto r) {
        const Tensor w = full({1}, 2, x.dtype(), x.device()), p = full(Shape{x.dim(-1)}, 3, x.dtype(), x.device());
        return binary_cross_entropy_with_logits(x, t, {.weight = w, .pos_weight = p, .reduction = r});
      }};
  for (DType dtype : kFloats)
    for (Layout layout : {same, transposed, shifted})
      for (const Shape& shape : {Shape{5, 7}, Shape{100, 90}})
        for (size_t k = 0; k < std::size(losses); ++k)
          for (LossReduction r : {LossReduction::mean, LossReduction::none}) {
            if (shape.size() > 100 && k % 7 > 0) continue;  // many elements: with and without weights
            SCOPED_TRACE(concat(dtype, " ", shape, " loss ", k, " reduction ", int(r)));
            const Tensor x = noise(shape, dtype, 1), t = noise(shape, dtype, 2, 0.1, 1);
            compare([&](const Tensors& in) { return losses[k](in[0], in[1], r); }, {x, t}, 2 * epsilon_of(dtype),
                    layout);
          }
}

}  // namespace
}  // namespace ringtape
