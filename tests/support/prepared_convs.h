#pragma once
#include <cmath>
#include <string>
#include <vector>

#include "autograd/create.h"
#include "autograd/ops.h"
#include "kernels/conv2d_prepared.h"
#include "tests/support/conv_cases.h"

// Prepared convolutions of the cases of conv_cases.h, and the same in f64.
namespace ringtape::test::conv {

struct PreparedData {
  DType dtype;
  Tensor x, w, b, residual;  // w and b in f32
  bool relu = true;
};
inline PreparedData draw_prepared(const Case& t, DType dtype = DType::f32) {
  const Data d = draw(t);
  return {dtype, cast(d.x, dtype), d.w, d.b, cast(d.dy, dtype)};
}

// The images [from, to).
inline Tensor images(const Tensor& x, int64_t from, int64_t to) { return slice(x, 0, from, to); }
inline PreparedData first(PreparedData d, int64_t n) {
  d.x = images(d.x, 0, n), d.residual = images(d.residual, 0, n);
  return d;
}

inline View view_of(const Tensor& x) { return x.defined() ? View(x) : View{}; }

// `plain` means: the one that is chosen.
inline PreparedConv prepare(const Case& t, const PreparedData& d, ConvAlgorithm algorithm = ConvAlgorithm::plain) {
  PreparedConv conv = prepare_conv2d(d.w, view_of(d.b), t.window, {t.h, t.w, t.c}, d.dtype);
  if (algorithm == ConvAlgorithm::plain) return conv;
  conv.algorithm = algorithm;
  pack_conv2d(d.w, &conv);
  return conv;
}

inline Tensor run(const PreparedConv& conv, const PreparedData& d) {
  const Shape& each = conv.output;
  const Tensor y({d.x.dim(0), each[0], each[1], each[2]}, d.dtype);
  conv2d_prepared(y, d.x, conv, view_of(d.residual), d.relu);
  return y;
}

inline Tensor in_f64(const Case& t, const PreparedData& d) {
  Tensor y =
      conv2d(cast(d.x, DType::f64), cast(d.w, DType::f64), d.b.defined() ? cast(d.b, DType::f64) : d.b, t.window);
  if (d.residual.defined()) y = y + cast(d.residual, DType::f64);
  return d.relu ? relu(y) : y;
}

// As a part of the largest value; infinite with a NaN.
inline double largest_error(const Tensor& got, const Tensor& want) {
  const std::vector<double> a = values(got), b = values(want);
  double worst = 0, largest = 1e-30;
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::isnan(a[i])) return INFINITY;
    worst = std::max(worst, std::fabs(a[i] - b[i])), largest = std::max(largest, std::fabs(b[i]));
  }
  return worst / largest;
}

// The one that is chosen, and all others that can compute it.
inline std::vector<ConvAlgorithm> algorithms_of(const Case& t) {
  if (t.groups == t.c && t.groups > 1) return {ConvAlgorithm::plain};
  const Window& p = t.window;
  if (t.r != 3 || t.s != 3 || t.groups > 1 || p.stride_h != 1 || p.stride_w != 1 || p.dilation_h != 1 || p.pad_h > 2 ||
      p.pad_w > 2)
    return {ConvAlgorithm::plain, ConvAlgorithm::direct};
  return {ConvAlgorithm::plain, ConvAlgorithm::direct, ConvAlgorithm::winograd_2x2, ConvAlgorithm::winograd_4x4};
}

// In f32. F(4x4) amplifies rounding, F(2x2) by its sums of four numbers of each side; the direct sums of up to 4,608
// products have the error of their length.
inline double tolerance_of(ConvAlgorithm algorithm) {
  return algorithm == ConvAlgorithm::direct ? 3e-6 : algorithm == ConvAlgorithm::winograd_2x2 ? 1e-5 : 1e-4;
}

}  // namespace ringtape::test::conv
