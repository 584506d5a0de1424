#pragma once
#include <Eigen/Core>
#include <memory>
#include <type_traits>
#include <utility>

#include "core/tensor.h"

// Tensors as matrices of Eigen and back, without a copy, for code that has Eigen (nothing of ringtape includes this).
namespace ringtape {

template <class T>
using EigenMatrix = Eigen::Map<Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>, Eigen::Unaligned,
                               Eigen::Stride<Eigen::Dynamic, Eigen::Dynamic>>;
template <class T>
using EigenVector =
    Eigen::Map<Eigen::Matrix<T, Eigen::Dynamic, 1>, Eigen::Unaligned, Eigen::InnerStride<Eigen::Dynamic>>;

namespace detail {
// Elements between neighbours along an axis of the length n.
inline Eigen::Index eigen_stride(const Tensor& x, int axis) {
  if (x.dim(axis) <= 1) return 1;
  RT_CHECK_AS(ShapeError, x.strides()[axis] > 0, "as_eigen: shape ", x.shape(), " with strides ", x.strides(),
              " repeats elements; call contiguous(x) first");
  return x.strides()[axis];
}
}  // namespace detail

// The elements of a tensor (m, n) on a CPU, of any strides above 0; as it may be written, backward() does not notice.
// It is valid as long as the tensor's storage. Throws ShapeError, DTypeError or DeviceError.
template <class T> EigenMatrix<T> as_eigen(const Tensor& x) {
  RT_CHECK_AS(ShapeError, x.defined() && x.rank() == 2, "as_eigen: expected a matrix, got ", x.shape(),
              "; reshape(x, {m, n}) makes one");
  return {x.data<T>(), x.dim(0), x.dim(1), {detail::eigen_stride(x, 0), detail::eigen_stride(x, 1)}};
}

// The same of a tensor (n).
template <class T> EigenVector<T> as_eigen_vector(const Tensor& x) {
  RT_CHECK_AS(ShapeError, x.defined() && x.rank() == 1, "as_eigen_vector: expected a vector, got ", x.shape(),
              "; reshape(x, {-1}) makes one");
  return {x.data<T>(), x.dim(0), Eigen::InnerStride<Eigen::Dynamic>(detail::eigen_stride(x, 0))};
}

// A tensor (rows, columns), or (n) for a vector, of the elements of a matrix that keeps them, of either order of
// storage. `owner` is kept alive as long as the tensor's storage; without one, the matrix must outlive it.
template <class Derived> Tensor from_eigen(Eigen::DenseBase<Derived>& x, std::shared_ptr<void> owner = nullptr) {
  using T = typename Derived::Scalar;
  static_assert(bool(Derived::Flags & Eigen::DirectAccessBit), "an expression has no elements; evaluate it first");
  Derived& m = x.derived();
  const int64_t row = m.IsRowMajor ? m.outerStride() : m.innerStride();
  const int64_t column = m.IsRowMajor ? m.innerStride() : m.outerStride();
  const auto bytes = size_t(m.size() == 0 ? 0 : (m.rows() - 1) * row + (m.cols() - 1) * column + 1) * sizeof(T);
  const auto storage = std::make_shared<Storage>(std::shared_ptr<void>(std::move(owner), m.data()), bytes, Device{});
  const Tensor all(storage, {int64_t(bytes / sizeof(T))}, dtype_of<std::remove_const_t<T>>::value);
  if constexpr (bool(Derived::IsVectorAtCompileTime)) return all.window({m.size()}, {m.innerStride()});
  else return all.window({m.rows(), m.cols()}, {row, column});
}

}  // namespace ringtape
