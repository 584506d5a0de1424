#pragma once
#include "core/view.h"

namespace ringtape::cuda {

// c[b] = a[b] w[b] + bias, with ReLU if asked, for row-major c: (m, k) times (k, n), batch times. Strides in elements.
struct Operand {
  const void* data;
  int64_t row_stride, column_stride, batch_stride;
};
struct BlasProduct {
  DType dtype;
  int64_t batch, m, n, k;
  void* c;
  Operand a, w;
  const void* bias;  // (n), or null
  bool relu;
};

// Runs cuBLASLt on the compute stream; 16-bit types accumulate in f32. Returns false without any effect if it has no
// algorithm for these types, strides or alignments.
bool blas_gemm(Device device, const BlasProduct& product);

}  // namespace ringtape::cuda
