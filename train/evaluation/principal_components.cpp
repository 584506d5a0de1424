#include "train/evaluation/principal_components.h"

#include <cmath>

#include "autograd/ops.h"
#include "autograd/tape.h"

namespace ringtape {

// Makes the two columns of v, f64 (F, 2), orthogonal to each other and of length 1; a column of zeros stays.
static void orthonormalize(double* v, int64_t rows) {
  const auto product = [&](int a, int b) {
    double sum = 0;
    for (int64_t i = 0; i < rows; ++i) sum += v[2 * i + a] * v[2 * i + b];
    return sum;
  };
  const auto scale = [&](int column) {
    const double length = std::sqrt(product(column, column));
    for (int64_t i = 0; i < rows; ++i) v[2 * i + column] /= length > 0 ? length : 1;
  };
  scale(0);
  const double along = product(0, 1);
  for (int64_t i = 0; i < rows; ++i) v[2 * i + 1] -= along * v[2 * i];
  scale(1);
}

Tensor principal_components(const Tensor& x, std::array<double, 2>& explained) {
  constexpr int kIterations = 30;  // of the power method: enough for a picture
  const NoGrad no_grad;
  const int64_t n = x.dim(0), features = x.dim(1);
  Tensor rows = cast(to(x, Device{}), DType::f64);
  rows = rows - mean(rows, {0}, true);
  const Tensor columns = contiguous(transpose(rows, 0, 1));
  Tensor v({features, 2}, DType::f64);
  for (int64_t i = 0; i < features; ++i)  // any two directions that are no axes
    v.data<double>()[2 * i] = std::cos(double(i)), v.data<double>()[2 * i + 1] = std::sin(1.7 * double(i) + 1);
  orthonormalize(v.data<double>(), features);
  for (int i = 0; i < kIterations; ++i) {
    v = matmul(columns, matmul(rows, v));
    orthonormalize(v.data<double>(), features);
  }
  const Tensor points = matmul(rows, v);
  double total = 0;
  const Tensor dense = contiguous(rows);
  for (const double value : dense.span<double>()) total += value * value;
  const Tensor out({n, 2});
  for (int axis = 0; axis < 2; ++axis) {
    double largest = 0, sum = 0;
    for (int64_t i = 0; i < n; ++i) {
      const double value = points.data<double>()[2 * i + axis];
      sum += value * value;
      if (std::abs(value) > std::abs(largest)) largest = value;
    }
    for (int64_t i = 0; i < n; ++i)
      out.data<float>()[2 * i + axis] = float(points.data<double>()[2 * i + axis] * (largest < 0 ? -1 : 1));
    explained[size_t(axis)] = total > 0 ? sum / total : 0;
  }
  return out;
}

}  // namespace ringtape
