#include "kernels/matmul.h"

#include "kernels/cuda/blas_gemm.h"
#include "kernels/cuda/gemm.cuh"

namespace ringtape::cuda {
namespace {

void multiply(View y, const Operand& a, const Operand& w, const View& bias, Product p) {
  if (p.batch * p.m * p.n == 0) return;
  // One matrix for all of a batch that lies like one tall matrix: one product.
  if (p.batch > 1 && w.batch_stride == 0 && a.batch_stride == p.m * a.row_stride) p.m *= p.batch, p.batch = 1;
  const bool by_blas = env::cublas() && p.k > 0;
  if (by_blas && blas_gemm(y.device, {y.dtype, p.batch, p.m, p.n, p.k, y.data, a, w, bias.data, p.relu})) return;
  dispatch_float(y.dtype, [&]<class T>() {
    const auto matrix = [](const Operand& x) { return Matrix<const T>{static_cast<const T*>(x.data), x.row_stride, x.column_stride, x.batch_stride}; };
    gemm<T>(y.device, y.as<T>(), matrix(a), matrix(w), bias.as<T>(), p);
  });
}

}  // namespace

void matmul_forward(View y, View a, View w) {
  multiply(y, {a.data, a.strides[1], a.strides[2], a.strides[0]}, {w.data, w.strides[1], w.strides[2], w.strides[0]}, View{},
           {y.dims[0], y.dims[1], y.dims[2], a.dims[2], false});
}

void linear_forward(View y, View x, View w, View b, Activation f) {
  multiply(y, {x.data, x.strides[0], x.strides[1], 0}, {w.data, w.strides[1], w.strides[0], 0}, b, {1, y.dims[0], y.dims[1], x.dims[1], f == Activation::relu});
}

}  // namespace ringtape::cuda
