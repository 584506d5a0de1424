#include "nn/whitening.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "core/check.h"
#include "core/parallel.h"

namespace ringtape::nn {
namespace {

// A symmetric matrix, all elements row by row.
using Matrix = std::vector<double>;

// The mean over all patches p of p p^T. Chunks of images have sums of their own, which are added in their order.
Matrix second_moments(const Tensor& images, int64_t side) {
  constexpr int64_t kChunk = 64;
  const int64_t count = images.dim(0), height = images.dim(1), width = images.dim(2), channels = images.dim(3),
                n = side * side * channels, chunks = (count + kChunk - 1) / kChunk;
  std::vector<Matrix> sums(size_t(chunks), Matrix(size_t(n * n)));
  parallel_for(chunks, 1, [&](int64_t begin, int64_t end) {
    std::vector<double> patch(static_cast<size_t>(n));
    for (int64_t chunk = begin; chunk < end; ++chunk)
      for (int64_t i = chunk * kChunk; i < std::min((chunk + 1) * kChunk, count); ++i)
        for (int64_t row = 0; row + side <= height; ++row)
          for (int64_t column = 0; column + side <= width; ++column) {
            for (int64_t r = 0; r < side; ++r) {
              const float* const from = images.data<float>() + ((i * height + row + r) * width + column) * channels;
              std::copy_n(from, side * channels, patch.begin() + r * side * channels);
            }
            double* sum = sums[size_t(chunk)].data();
            for (int64_t a = 0; a < n; ++a, sum += n)
              for (int64_t b = 0; b < n; ++b) sum[b] += patch[size_t(a)] * patch[size_t(b)];
          }
  });
  Matrix out(size_t(n * n));
  const double patches = double(count * (height - side + 1) * (width - side + 1));
  for (const Matrix& sum : sums)
    for (size_t i = 0; i < out.size(); ++i) out[i] += sum[i] / patches;
  return out;
}

// Makes `a` (n, n) diagonal, its eigenvalues, by Jacobi's rotations, and returns the eigenvectors as rows.
Matrix eigenvectors(Matrix& a, size_t n) {
  constexpr int kMaxSweeps = 50;
  Matrix v(n * n);
  for (size_t i = 0; i < n; ++i) v[i * n + i] = 1;
  for (int sweep = 0; sweep < kMaxSweeps; ++sweep) {
    double beside = 0, all = 0;
    for (size_t i = 0; i < n * n; ++i) all += a[i] * a[i], beside += i / n == i % n ? 0 : a[i] * a[i];
    if (beside <= 1e-30 * all) break;
    for (size_t p = 0; p < n; ++p)
      for (size_t q = p + 1; q < n; ++q) {
        if (a[p * n + q] == 0) continue;
        const double theta = (a[q * n + q] - a[p * n + p]) / (2 * a[p * n + q]);
        const double t = std::copysign(1 / (std::fabs(theta) + std::sqrt(theta * theta + 1)), theta);
        const double c = 1 / std::sqrt(t * t + 1), s = t * c;
        for (size_t k = 0; k < n; ++k) {
          const double x = a[k * n + p], y = a[k * n + q];
          a[k * n + p] = c * x - s * y, a[k * n + q] = s * x + c * y;
        }
        for (double* const rows : {a.data(), v.data()})
          for (size_t k = 0; k < n; ++k) {
            const double x = rows[p * n + k], y = rows[q * n + k];
            rows[p * n + k] = c * x - s * y, rows[q * n + k] = s * x + c * y;
          }
      }
  }
  return v;
}

}  // namespace

Tensor whitening_filters(const Tensor& images, int64_t side, double eps) {
  RT_CHECK_AS(ShapeError, images.rank() == 4 && images.dim(0) > 0 && images.dim(1) >= side && images.dim(2) >= side,
              "whitening_filters: expected images (N, H, W, C) of at least ", side, "x", side, ", got ",
              images.shape());
  RT_CHECK_AS(DTypeError, images.dtype() == DType::f32 && images.contiguous(),
              "whitening_filters: expected contiguous images of f32, got ", images.dtype());
  const int64_t n = side * side * images.dim(3);
  Matrix moments = second_moments(images, side);
  const Matrix vectors = eigenvectors(moments, size_t(n));
  const auto value = [&](int64_t i) { return moments[size_t(i * n + i)]; };
  std::vector<int64_t> order(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, [&](int64_t i, int64_t j) { return value(i) > value(j); });
  Tensor out({2 * n, side, side, images.dim(3)}, DType::f32);
  for (int64_t i = 0; i < n; ++i) {
    const double* const v = vectors.data() + order[size_t(i)] * n;
    const double* const largest =
        std::max_element(v, v + n, [](double x, double y) { return std::fabs(x) < std::fabs(y); });
    const double scale = std::copysign(1 / std::sqrt(std::max(value(order[size_t(i)]), 0.0) + eps), *largest);
    for (int64_t k = 0; k < n; ++k) {
      out.data<float>()[i * n + k] = float(v[k] * scale);
      out.data<float>()[(n + i) * n + k] = float(-v[k] * scale);
    }
  }
  return out;
}

}  // namespace ringtape::nn
