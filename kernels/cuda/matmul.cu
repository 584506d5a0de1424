#include "kernels/matmul.h"

#include "core/env.h"
#include "kernels/cuda/gemm/blas_gemm.h"
#include "kernels/cuda/gemm/matrix.cuh"

namespace ringtape::cuda {
namespace {

// Contiguous (batch, m, n), with an optional bias (n) and ReLU.
template <class T> struct MatrixResult {
  using Element = T;
  using Sums = NoSums;
  T* data;
  const T* bias;
  int64_t m, n;
  bool relu;
  __device__ T of(compute_t<T> y, int64_t j) const {
    if (bias) y += compute_t<T>(bias[j]);
    return T(relu && y < 0 ? compute_t<T>(0) : y);
  }
  __device__ void put(int64_t b, int64_t, int64_t i, int64_t j, compute_t<T> y) const {
    data[(b * m + i) * n + j] = of(y, j);
  }
  bool aligned() const { return aligned_width(kPackOf<T>, data) == kPackOf<T>; }
  __device__ bool packed() const { return n % kPackOf<T> == 0; }
  __device__ void put_pack(int64_t b, int64_t, int64_t i, int64_t j, const float* y, NoSums&) const {
    Vec<T, kPackOf<T>> out;
    for (int k = 0; k < kPackOf<T>; ++k) out.x[k] = of(y[k], j + k);
    store(data + (b * m + i) * n + j, out);
  }
};

// Whether tensor cores computed it.
template <class T>
bool multiply_packed(Device device, const Matrix<T>& a, const Matrix<T>& w, const MatrixResult<T>& out,
                     const Product& p) {
  const auto with = [&]<bool a_first, bool w_first>() {
    return gemm_mma<T>(device, PackedMatrix<T, a_first>{a, p.m, p.k}, PackedMatrix<T, w_first>{w, p.n, p.k}, out, p);
  };
  return with.template operator()<false, false>() || with.template operator()<false, true>() ||
         with.template operator()<true, false>() || with.template operator()<true, true>();
}

void multiply(View y, const Operand& a, const Operand& w, const View& bias, bool relu, Product p) {
  if (p.batch * p.m * p.n == 0) return;
  // One w for the whole batch, and a batch that is one tall matrix in memory: one product.
  if (p.batch > 1 && w.batch_stride == 0 && a.batch_stride == p.m * a.row_stride) p.m *= p.batch, p.batch = 1;
  const BlasProduct product{.dtype = y.dtype,
                            .batch = p.batch,
                            .m = p.m,
                            .n = p.n,
                            .k = p.k,
                            .c = y.data,
                            .a = a,
                            .w = w,
                            .bias = bias.data,
                            .relu = relu};
  if (env::cublas() && !arithmetic().own_kernels && p.k > 0 && blas_gemm(y.device, product)) return;
  dispatch_float(y.dtype, [&]<class T>() {
    const Matrix<T> left{static_cast<const T*>(a.data), a.batch_stride, a.row_stride, a.column_stride};
    const Matrix<T> right{static_cast<const T*>(w.data), w.batch_stride, w.column_stride, w.row_stride};
    const MatrixResult<T> out{y.as<T>(), bias.as<T>(), p.m, p.n, relu};
    if constexpr (kHasMma<T>)
      if (multiply_packed(y.device, left, right, out, p)) return;
    gemm<compute_t<T>>(y.device, left, right, out, p);
  });
}

}  // namespace

void matmul_forward(View y, View a, View w) {
  multiply(y, {a.data, a.strides[1], a.strides[2], a.strides[0]}, {w.data, w.strides[1], w.strides[2], w.strides[0]},
           View{}, false, {y.dims[0], y.dims[1], y.dims[2], a.dims[2]});
}

void linear_forward(View y, View x, View w, View b, Activation f) {
  multiply(y, {x.data, x.strides[0], x.strides[1], 0}, {w.data, w.strides[1], w.strides[0], 0}, b,
           f == Activation::relu, {1, y.dims[0], y.dims[1], x.dims[1]});
}

}  // namespace ringtape::cuda
