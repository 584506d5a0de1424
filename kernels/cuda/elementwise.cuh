#pragma once
#include <algorithm>
#include <array>
#include <limits>
#include <tuple>
#include <utility>

#include "kernels/cuda/vector.cuh"
#include "kernels/layout.h"

// y[i] = f(x1[i], x2[i], ...) over views of any strides and broadcasting. f takes and returns the compute type C
// (float, or double for f64). It is a small struct that is copied to the device: template <class C> __device__ C
// operator()(C x1, ...) const. Dense operands are accessed in 16 bytes; others element by element, each of any dtype. f
// may work in place.
namespace ringtape::cuda {
namespace {

template <class C, class T> __device__ C widen(T x) { return static_cast<C>(static_cast<compute_t<T>>(x)); }
template <class T, class C> __device__ T narrow(C x) { return static_cast<T>(static_cast<compute_t<T>>(x)); }

// A dense operand, or one element for all: of its own type, or (`number`) a plain number of the compute type.
template <class T> struct Dense {
  using C = compute_t<T>;
  const T* data;
  const C* number;
  bool constant;

  template <class As, int N> RT_OUTLINED Vec<As, N> at(int64_t i) const {
    Vec<As, N> out;
    if (constant) {
      const As value = number ? As(*number) : widen<As>(*data);
#pragma unroll
      for (int j = 0; j < N; ++j) out.x[j] = value;
    } else {
      const Vec<T, N> v = load<N>(data + i);
#pragma unroll
      for (int j = 0; j < N; ++j) out.x[j] = widen<As>(v.x[j]);
    }
    return out;
  }
};

template <class Y, class C, int N, class F, class... X>
__device__ Vec<Y, N> map_vector(const F& f, const Vec<C, N>& first, const X&... x) {
  Vec<Y, N> y;
#pragma unroll
  for (int j = 0; j < N; ++j) y.x[j] = narrow<Y>(f(first.x[j], x.x[j]...));
  return y;
}

template <class C, int N, class F, class Y, class... X> __global__ void map_dense(F f, Y* y, int64_t n, Dense<X>... x) {
  int64_t i = thread_in_grid() * N;
  for (; i + N <= n; i += threads_in_grid() * N) store(y + i, map_vector<Y>(f, x.template at<C, N>(i)...));
  for (; i < n; ++i) store(y + i, map_vector<Y>(f, x.template at<C, 1>(i)...));  // the rest, by one thread
}

// x / d for x < 2^31, by a multiplication (Granlund and Montgomery, "Division by invariant integers", 1994).
struct Divider {
  uint32_t d, magic, shift;
  Divider() = default;
  explicit Divider(uint32_t divisor) : d(divisor), shift(0) {
    while ((uint64_t{1} << shift) < d) ++shift;
    magic = uint32_t((((uint64_t{1} << shift) - d) << 32) / d + 1);
  }
  __device__ uint32_t quotient(uint32_t x) const { return (__umulhi(x, magic) + x) >> shift; }
};

// The offsets of element i in N operands. Element counts are below 2^31; offsets may be larger.
template <size_t N> struct Index {
  int rank;
  Divider dims[kMaxRank];
  int64_t strides[N][kMaxRank];

  explicit Index(const Layout<N>& layout) : rank(layout.rank) {
    for (int d = 0; d < rank; ++d) {
      dims[d] = Divider(uint32_t(layout.dims[d]));
      for (size_t k = 0; k < N; ++k) strides[k][d] = layout.strides[k][d];
    }
  }
  RT_OUTLINED void offsets(uint32_t i, int64_t (&at)[N]) const {
    for (size_t k = 0; k < N; ++k) at[k] = 0;
    for (int d = rank - 1; d >= 0; --d) {
      const uint32_t q = dims[d].quotient(i), along = i - q * dims[d].d;
      for (size_t k = 0; k < N; ++k) at[k] += along * strides[k][d];
      i = q;
    }
  }
};

constexpr int64_t kMaxElements = std::numeric_limits<int32_t>::max();  // of an Index

// N operands of any dtype and strides.
template <size_t N> struct Strided {
  Index<N> index;
  char* data[N];
  DType dtypes[N];

  Strided(const Layout<N>& layout, const std::array<View, N>& views, const std::array<int64_t, N>& offsets)
      : index(layout) {
    for (size_t k = 0; k < N; ++k) {
      dtypes[k] = views[k].dtype;
      data[k] = static_cast<char*>(views[k].data) + offsets[k] * int64_t(size_of(dtypes[k]));
    }
  }
  template <class C> RT_OUTLINED C read(size_t k, int64_t at) const {
    const auto as = [&]<class T>() { return widen<C>(reinterpret_cast<const T*>(data[k])[at]); };
    switch (dtypes[k]) {
      case DType::b8: return as.template operator()<bool>();
      case DType::u8: return as.template operator()<uint8_t>();
      case DType::i32: return as.template operator()<int32_t>();
      case DType::i64: return as.template operator()<int64_t>();
      case DType::f16: return as.template operator()<f16>();
      case DType::bf16: return as.template operator()<bf16>();
      case DType::f32: return as.template operator()<float>();
      case DType::f64: return as.template operator()<double>();
    }
    return C(0);
  }
  template <class C> RT_OUTLINED void write(int64_t at, C value) const {  // to operand 0
    const auto as = [&]<class T>() { reinterpret_cast<T*>(data[0])[at] = narrow<T>(value); };
    switch (dtypes[0]) {
      case DType::b8: return as.template operator()<bool>();
      case DType::u8: return as.template operator()<uint8_t>();
      case DType::i32: return as.template operator()<int32_t>();
      case DType::i64: return as.template operator()<int64_t>();
      case DType::f16: return as.template operator()<f16>();
      case DType::bf16: return as.template operator()<bf16>();
      case DType::f32: return as.template operator()<float>();
      case DType::f64: return as.template operator()<double>();
    }
  }
};

template <class C, class F, size_t N, size_t... I>
__device__ C call(const F& f, const Strided<N>& x, const int64_t (&at)[N], std::index_sequence<I...>) {
  return f(x.template read<C>(I + 1, at[I + 1])...);
}

template <class C, size_t N, class F> __global__ void map_strided(F f, Strided<N> operands, uint32_t n) {
  for (int64_t i = thread_in_grid(); i < n; i += threads_in_grid()) {
    int64_t at[N];
    operands.index.offsets(uint32_t(i), at);
    operands.write(at[0], call<C>(f, operands, at, std::make_index_sequence<N - 1>{}));
  }
}

// Only which kernels are launched depends on the type of f, to which `f` points.
template <size_t N> void launch_strided(const Kernel& kernel, const void* f, const std::array<View, N>& views) {
  split(coalesce(views), kMaxElements, [&](const Layout<N>& part, const std::array<int64_t, N>& offsets) {
    const Strided<N> operands(part, views, offsets);
    const auto n = uint32_t(part.size());
    launch(kernel, views[0].device, covering(views[0].device, n), {f, &operands, &n});
  });
}

// Operands of any dtypes.
template <class C, class F, class... X> void map_any(const F& f, const View& y, const X&... x) {
  constexpr size_t n_operands = 1 + sizeof...(x);
  launch_strided<n_operands>(launchable<map_strided<C, n_operands, F>>(), &f, {y, x...});
}

// Whether x has the C++ type T, and either `width` elements can be accessed at a time or one element stands for all.
template <class T, size_t N> bool wide(const Layout<N>& layout, size_t k, const View& x, int width) {
  if (layout.constant(k)) return x.dtype == dtype_of<T>::value || x.dtype == dtype_of<compute_t<T>>::value;
  return x.dtype == dtype_of<T>::value && layout.dense(k) && aligned_width(width, x.as<const T>()) == width;
}

template <class T> Dense<T> dense_operand(const View& x, bool constant) {
  const bool number = constant && x.dtype != dtype_of<T>::value;
  return {number ? nullptr : x.as<const T>(), number ? x.as<const compute_t<T>>() : nullptr, constant};
}

template <class Y, class... X> constexpr int kMapWidth = int(16 / std::max({sizeof(Y), sizeof(X)...}));

template <class Y, class... X, size_t... I>
void launch_dense(const Kernel& dense, const Kernel& strided, const void* f,
                  const std::array<View, 1 + sizeof...(X)>& views, std::index_sequence<I...>) {
  constexpr int width = kMapWidth<Y, X...>;
  const Layout<1 + sizeof...(X)> layout = coalesce(views);
  if (!layout.dense(0) || !wide<Y>(layout, 0, views[0], width) || !(wide<X>(layout, I + 1, views[I + 1], width) && ...))
    return launch_strided(strided, f, views);
  const int64_t n = layout.size();
  const std::tuple<Dense<X>...> operands{dense_operand<X>(views[I + 1], layout.constant(I + 1))...};
  launch(dense, views[0].device, covering(views[0].device, (n + width - 1) / width),
         {f, &views[0].data, &n, &std::get<I>(operands)...});
}

// Operands of the C++ types Y and X...; fast if dense.
template <class Y, class... X, class F, class... Views> void map_as(const F& f, const View& y, const Views&... x) {
  using C = compute_t<Y>;
  if constexpr (sizeof(C) == 8)  // f64 is only for checks: one element at a time
    map_any<C>(f, y, x...);
  else
    launch_dense<Y, X...>(launchable<map_dense<C, kMapWidth<Y, X...>, F, Y, X...>>(),
                          launchable<map_strided<C, 1 + sizeof...(X), F>>(), &f, {y, x...},
                          std::index_sequence_for<X...>{});
}

// The same, element by element: for what is rare.
template <class F, class... X> void map_float(const F& f, const View& y, const X&... x) {
  if (y.dtype == DType::f64) map_any<double>(f, y, x...);
  else map_any<float>(f, y, x...);
}

// Operands of one floating dtype.
template <class F, class... X> void map(const F& f, const View& y, const X&... x) {
  dispatch_float(y.dtype, [&]<class T>() { map_as<T, std::conditional_t<true, T, X>...>(f, y, x...); });
}

}  // namespace
}  // namespace ringtape::cuda
