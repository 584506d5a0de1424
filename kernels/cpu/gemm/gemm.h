#pragma once
#include <cstdint>

#include "core/dtype.h"
#include "kernels/cpu/vector/isa.h"

RT_ISA_BEGIN

// A matrix in memory: element (i, j) is at data[i * row_stride + j * col_stride].
template <class T> struct Matrix {
  T* data;
  int64_t row_stride, col_stride;
  Matrix<T> transposed() const { return {data, col_stride, row_stride}; }
};

// c = a b + bias: (m, k) times (k, n), with `bias` (n elements, or null) added to each row. Any strides. The order of
// the k products in each element of c depends on the shape and the strides, not on the number of threads. T: float,
// double, f16 or bf16. 16-bit types accumulate in float; they are converted on load and store, unless the processor
// multiplies bf16 itself (kernels/bf16_unit.h).
template <class T>
void gemm(int64_t m, int64_t n, int64_t k, Matrix<const T> a, Matrix<const T> b, const T* bias, Matrix<T> c);

RT_ISA_END
