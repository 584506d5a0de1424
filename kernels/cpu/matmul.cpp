#include "kernels/matmul.h"

#include "core/parallel.h"
#include "kernels/cpu/gemm/gemm.h"
#include "kernels/cpu/vector/isa.h"
#include "kernels/unary.h"

RT_ISA_BEGIN

namespace {

// Multiply-adds per matrix. Up to this size threads divide the batch, above it each matrix.
constexpr int64_t kSmallMatrix = 1 << 22;

template <class T> void batched(const View& y, const View& a, const View& w) {
  const int64_t batch = y.dims[0], m = y.dims[1], n = y.dims[2], k = a.dims[2];
  const auto one = [&](int64_t count, int64_t rows, int64_t i) {
    gemm<T>(count * rows, n, k, {a.as<const T>() + i * a.strides[0], a.strides[1], a.strides[2]},
            {w.as<const T>() + i * w.strides[0], w.strides[1], w.strides[2]}, nullptr, {y.as<T>() + i * m * n, n, 1});
  };
  const bool one_matrix = w.strides[0] == 0 && a.strides[0] == m * a.strides[1];
  if (one_matrix) return one(batch, m, 0);
  const int64_t work = m * n * k;
  if (work > kSmallMatrix || batch == 1)
    for (int64_t i = 0; i < batch; ++i) one(1, m, i);
  else
    parallel_for(batch, std::max<int64_t>(1, (1 << 16) / std::max<int64_t>(1, work)), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) one(1, m, i);
    });
}

}  // namespace

void matmul_forward(View y, View a, View w) {
  dispatch_float(y.dtype, [&]<class T>() { batched<T>(y, a, w); });
}

void linear_forward(View y, View x, View w, View b, Activation f) {
  dispatch_float(y.dtype, [&]<class T>() {
    gemm<T>(y.dims[0], y.dims[1], x.dims[1], {x.as<const T>(), x.strides[0], x.strides[1]},
            {w.as<const T>(), w.strides[1], w.strides[0]}, b.as<const T>(), {y.as<T>(), y.dims[1], 1});
  });
  if (f == Activation::relu) relu_forward(y, y);
}

RT_ISA_END
