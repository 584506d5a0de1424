#include "nn/positions.h"

#include <algorithm>
#include <cmath>

#include "autograd/ops.h"

namespace ringtape::nn {

// Keys' cubic with a = -1/2.
static double cubic(double x) {
  x = std::abs(x);
  return x < 1 ? (1.5 * x - 2.5) * x * x + 1 : x < 2 ? ((-0.5 * x + 2.5) * x - 4) * x + 2 : 0;
}

// (to, from): row i holds the weights of pixel i of a scaled axis.
static Tensor scaling_matrix(int64_t from, int64_t to) {
  const Tensor out = zeros({to, from});
  const double scale = double(from) / double(to), wide = std::max(1.0, scale);
  for (int64_t i = 0; i < to; ++i) {
    float* const row = out.data<float>() + i * from;
    double sum = 0;
    for (int pass = 0; pass < 2; ++pass)
      for (int64_t x = 0; x < from; ++x) {
        const double weight = cubic((double(x) + 0.5 - (double(i) + 0.5) * scale) / wide);
        if (pass == 0) sum += weight;
        else row[x] = float(weight / sum);
      }
  }
  return out;
}

Tensor resampled_positions(const Tensor& positions, int64_t extra, const Grid& from, const Grid& to) {
  if (from == to) return positions;
  const int64_t width = positions.dim(2);
  const Tensor grid = reshape(slice(positions, 1, extra, kToEnd), {from[0], from[1], width});
  const auto matrix = [&](int axis) {
    return cast(ringtape::to(scaling_matrix(from[axis], to[axis]), positions.device()), positions.dtype());
  };
  const Tensor scaled = einsum("ya,xb,abd->yxd", {matrix(0), matrix(1), grid});
  return concat({slice(positions, 1, 0, extra), reshape(scaled, {1, to[0] * to[1], width})}, 1);
}

Tensor sine_positions(int64_t extra, const Grid& grid, int64_t width) {
  RT_CHECK_AS(UsageError, width % 4 == 0, "sine_positions: a width of ", width, " is not a multiple of 4");
  const Tensor out = zeros({1, extra + grid[0] * grid[1], width});
  const int64_t quarter = width / 4;
  float* to = out.data<float>() + extra * width;
  for (int64_t y = 0; y < grid[0]; ++y)
    for (int64_t x = 0; x < grid[1]; ++x, to += width)
      for (int64_t i = 0; i < quarter; ++i) {
        const double wave = std::pow(10000, -double(i) / double(quarter));
        to[i] = float(std::sin(double(x) * wave)), to[quarter + i] = float(std::cos(double(x) * wave));
        to[2 * quarter + i] = float(std::sin(double(y) * wave)),
                         to[3 * quarter + i] = float(std::cos(double(y) * wave));
      }
  return out;
}

}  // namespace ringtape::nn
