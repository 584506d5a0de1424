#pragma once
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "autograd/create.h"
#include "autograd/ops.h"
#include "kernels/arithmetic.h"
#include "kernels/batch_norm.h"
#include "kernels/bf16_unit.h"
#include "kernels/conv2d.h"
#include "kernels/conv2d_norm.h"
#include "tests/support/support.h"

// Convolutions of many shapes, and the same as plain sums in f64.
namespace ringtape::test::conv {

struct Case {
  std::string name;
  int64_t n, h, w, c, k, r, s;
  Window window;
  int64_t groups = 1;
  bool bias = false;

  int64_t rows() const { return window.rows(h, r); }
  int64_t columns() const { return window.columns(w, s); }
};

struct Data {
  Tensor x, w, b, dy;
  template <class F> Data each(F f) const { return {f(x), f(w), b.defined() ? f(b) : b, f(dy)}; }
};
inline Data draw(const Case& t, DType dtype = DType::f32) {
  manual_seed(3);
  const Data d{randn({t.n, t.h, t.w, t.c}), randn({t.k, t.r, t.s, t.c / t.groups}), t.bias ? randn({t.k}) : Tensor{},
               randn({t.n, t.rows(), t.columns(), t.k})};
  return d.each([dtype](const Tensor& x) { return cast(x, dtype); });
}

struct Result {
  Tensor y, dx, dw;
};
inline Result run(const Window& window, const Data& d) {
  Result out{empty_like(d.dy), empty_like(d.x), empty_like(d.w)};
  conv2d_forward(out.y, d.x, d.w, d.b, window);
  conv2d_backward_data(out.dx, d.dy, d.w, window);
  conv2d_backward_weights(out.dw, d.dy, d.x, window);
  return out;
}
inline Result run(const Case& t, const Data& d) { return run(t.window, d); }

struct Exact {
  std::vector<double> y, dx, dw;
};
inline Exact exact(const Case& t, const Data& d) {
  const std::vector<double> x = values(d.x), w = values(d.w), dy = values(d.dy);
  const std::vector<double> b = t.bias ? values(d.b) : std::vector<double>(size_t(t.k));
  Exact out{std::vector<double>(dy.size()), std::vector<double>(x.size()), std::vector<double>(w.size())};
  const int64_t cg = t.c / t.groups, kg = t.k / t.groups;
  const Window& p = t.window;
  for (size_t i = 0; i < dy.size(); ++i) out.y[i] = b[i % size_t(t.k)];
  for (int64_t place = 0; place < t.n * t.rows() * t.columns(); ++place)
    for (int64_t tap = 0; tap < t.r * t.s; ++tap) {
      const int64_t n = place / (t.rows() * t.columns()), i = place / t.columns() % t.rows(), j = place % t.columns();
      const int64_t row = i * p.stride_h - p.pad_h + tap / t.s * p.dilation_h,
                    col = j * p.stride_w - p.pad_w + tap % t.s * p.dilation_w;
      if (row < 0 || row >= t.h || col < 0 || col >= t.w) continue;
      for (int64_t k = 0; k < t.k; ++k) {
        const int64_t in = ((n * t.h + row) * t.w + col) * t.c + k / kg * cg, weight = (k * t.r * t.s + tap) * cg;
        const double g = dy[size_t(place * t.k + k)];
        double sum = 0;
        for (int64_t c = 0; c < cg; ++c) {
          sum += x[size_t(in + c)] * w[size_t(weight + c)];
          out.dx[size_t(in + c)] += g * w[size_t(weight + c)];
          out.dw[size_t(weight + c)] += g * x[size_t(in + c)];
        }
        out.y[size_t(place * t.k + k)] += sum;
      }
    }
  return out;
}

// The norm of the error as a part of the norm of the exact values; infinite with a NaN.
inline double norm_error(const Tensor& got, const std::vector<double>& want) {
  const std::vector<double> a = values(got);
  double error = 0, norm = 1e-60;
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::isnan(a[i])) return INFINITY;
    error += (a[i] - want[i]) * (a[i] - want[i]), norm += want[i] * want[i];
  }
  return std::sqrt(error / norm);
}

inline const Case kResNet[] = {{"stem", 2, 32, 32, 3, 64, 3, 3, square_window(1, 1)},
                               {"64", 2, 32, 32, 64, 64, 3, 3, square_window(1, 1)},
                               {"128", 2, 16, 16, 128, 128, 3, 3, square_window(1, 1)},
                               {"256", 2, 8, 8, 256, 256, 3, 3, square_window(1, 1)},
                               {"512", 2, 4, 4, 512, 512, 3, 3, square_window(1, 1)},
                               {"64-128", 2, 32, 32, 64, 128, 3, 3, square_window(2, 1)},
                               {"128-256", 2, 16, 16, 128, 256, 3, 3, square_window(2, 1)},
                               {"256-512", 2, 8, 8, 256, 512, 3, 3, square_window(2, 1)},
                               {"64-128 1x1", 2, 32, 32, 64, 128, 1, 1, square_window(2)},
                               {"256-512 1x1", 2, 8, 8, 256, 512, 1, 1, square_window(2)}};

// Winograd's from 16 channels on: every padding, tiles that reach beyond the image, one
// block and several, incomplete vectors.
inline const Case kOdd[] = {{"one pixel", 1, 1, 1, 16, 16, 3, 3, square_window(1, 1)},
                            {"one place", 1, 3, 3, 17, 19, 3, 3, square_window(1)},
                            {"5x7", 1, 5, 7, 17, 19, 3, 3, square_window(1, 1), 1, true},
                            {"no padding", 2, 9, 6, 33, 16, 3, 3, square_window(1), 1, true},
                            {"padding 2", 1, 6, 7, 16, 50, 3, 3, square_window(1, 2)},
                            {"paddings", 2, 7, 8, 20, 24, 3, 3, {1, 1, 0, 2, 1, 1}},
                            {"many tiles", 8, 33, 31, 16, 17, 3, 3, square_window(1, 1), 1, true},
                            {"many deep tiles", 3, 30, 29, 200, 16, 3, 3, square_window(1, 1)},
                            {"few channels", 2, 6, 5, 1, 19, 3, 3, square_window(1, 1), 1, true},
                            {"one output channel", 1, 5, 7, 17, 1, 3, 3, square_window(1, 1), 1, true},
                            {"5x5", 1, 9, 8, 3, 7, 5, 5, square_window(1, 2), 1, true},
                            {"7x7 stride 2", 1, 15, 14, 3, 20, 7, 7, square_window(2, 3)},
                            {"stride 3, 2", 2, 11, 10, 6, 5, 3, 2, {3, 2, 1, 0, 1, 1}},
                            {"dilation 2", 1, 9, 9, 4, 6, 3, 3, square_window(1, 2, 2)},
                            {"dilation 2, stride 2", 1, 9, 11, 4, 6, 3, 3, square_window(2, 2, 2)},
                            {"dilation 3, stride 2", 1, 12, 9, 18, 6, 2, 3, square_window(2, 3, 3)},
                            {"stride beyond the kernel", 1, 9, 9, 5, 4, 1, 2, square_window(3)},
                            {"1x1", 3, 5, 7, 40, 33, 1, 1, square_window(1), 1, true},
                            {"grouped", 2, 6, 5, 12, 8, 3, 3, square_window(1, 1), 4, true},
                            {"grouped, stride 2", 1, 7, 8, 34, 6, 3, 3, square_window(2, 1), 2},
                            {"depthwise", 2, 6, 7, 19, 19, 3, 3, square_window(1, 1), 19, true},
                            {"depthwise, stride 2, twice as many", 1, 7, 9, 17, 34, 5, 3, square_window(2, 2), 17},
                            {"padding beyond the kernel", 1, 2, 3, 4, 5, 3, 3, square_window(1, 4)},
                            {"pixels beyond a block", 2, 20, 19, 5, 9, 3, 3, square_window(1, 1)}};

// The same of n images.
inline Case many(Case t, int64_t n) {
  t.n = n, t.name += ", " + std::to_string(n);
  return t;
}
// Fewer pixels, and channels of more than one block.
inline Case small(Case t, int64_t n) {
  t.h = std::min<int64_t>(t.h, 9), t.w = std::min<int64_t>(t.w, 10);
  t.c = std::min<int64_t>(t.c, 96), t.k = std::min<int64_t>(t.k, 96);
  return many(t, n);
}

// bf16 by this unit, emulated where the machine lacks it.
struct Unit : ArithmeticScope {
  explicit Unit(Bf16Unit unit, bool emulated = false)
      : ArithmeticScope(&Arithmetic::bf16, Bf16Choice{unit, emulated}) {}
};

// Images normalised as they are read have the bytes of those normalised before, for any number of threads.
inline void expect_normalised_alike(const Case& t, DType dtype) {
  const Data d = draw(t, dtype);
  const Tensor mean = randn({t.c}), var = exp(randn({t.c})), w = randn({t.c}), b = randn({t.c});
  const auto results = [&](const auto& forward, const auto& weights) {
    const Result out{empty_like(d.dy), {}, empty_like(d.w)};
    forward(out.y), weights(out.dw);
    return out;
  };
  const Tensor h = empty_like(d.x);
  batch_norm_forward(h, {}, d.x, {}, mean, var, w, b, 1e-3, Activation::relu);
  const Result want = results([&](const Tensor& y) { conv2d_forward(y, h, d.w, {}, t.window); },
                              [&](const Tensor& dw) { conv2d_backward_weights(dw, d.dy, h, t.window); });
  const PixelNorm norm{mean, var, w, b, 1e-3};
  for (int count : {1, 2, 3}) {
    const Result got = with_threads(count, [&] {
      return results([&](const Tensor& y) { conv2d_norm_forward(y, d.x, norm, d.w, t.window); },
                     [&](const Tensor& dw) { conv2d_norm_backward_weights(dw, d.dy, d.x, norm, t.window); });
    });
    EXPECT_TRUE(same_bytes(got.y, want.y)) << t.name << ", " << dtype << ", " << count << " threads: y";
    EXPECT_TRUE(same_bytes(got.dw, want.dw)) << t.name << ", " << dtype << ", " << count << " threads: dw";
  }
}

}  // namespace ringtape::test::conv
