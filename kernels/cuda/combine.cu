#include "kernels/combine.h"

#include "kernels/cuda/vector.cuh"

namespace ringtape::cuda {
namespace {

// The type for sums and products of T: for integers the unsigned type, which wraps around.
template <class C, bool = std::is_integral_v<C>> struct WrapOf { using type = std::make_unsigned_t<C>; };
template <class C> struct WrapOf<C, false> { using type = C; };

// NaN on either side gives NaN.
template <class C> __device__ C combined(C a, C b, ReduceOp op) {
  using W = typename WrapOf<C>::type;
  switch (op) {
    case ReduceOp::max: return b != b || b > a ? b : a;
    case ReduceOp::min: return b != b || b < a ? b : a;
    case ReduceOp::product: return C(W(a) * W(b));
    default: return C(W(a) + W(b));
  }
}

// Multiplies by a factor, or divides integers by a divisor.
template <class C> struct Scale {
  std::conditional_t<std::is_integral_v<C>, int64_t, C> by;
  explicit Scale(double factor) {
    if constexpr (std::is_integral_v<C>) by = int64_t(1 / factor + 0.5);
    else by = C(factor);
  }
  __device__ C operator()(C x) const {
    if constexpr (std::is_integral_v<C>) return by == 1 ? x : C(x / by);
    else return x * by;
  }
};

template <class T, int N>
__device__ void combine_at(T* y, const Sources& x, int64_t at, ReduceOp op, const Scale<compute_t<T>>& scale) {
  using C = compute_t<T>;
  C all[N];
  const Vec<T, N> first = load<N>(static_cast<const T*>(x.data[0]) + at);
#pragma unroll
  for (int j = 0; j < N; ++j) all[j] = C(first.x[j]);
  for (int s = 1; s < x.count; ++s) {
    const Vec<T, N> source = load<N>(static_cast<const T*>(x.data[s]) + at);
#pragma unroll
    for (int j = 0; j < N; ++j) all[j] = combined(all[j], C(source.x[j]), op);
  }
  Vec<T, N> out;
#pragma unroll
  for (int j = 0; j < N; ++j) out.x[j] = T(scale(all[j]));
  store(y + at, out);
}

template <class T, int N>
__global__ void combine_sources(T* y, Sources x, int64_t n, ReduceOp op, Scale<compute_t<T>> scale) {
  int64_t i = thread_in_grid() * N;
  for (; i + N <= n; i += threads_in_grid() * N) combine_at<T, N>(y, x, i, op, scale);
  for (; i < n; ++i) combine_at<T, 1>(y, x, i, op, scale);  // the rest, by one thread
}

template <class T, int N> void combine_as(View y, const Sources& x, ReduceOp op, double factor) {
  launch<combine_sources<T, N>>(y.device, covering(y.device, (y.size() + N - 1) / N), y.as<T>(), x, y.size(), op,
                                Scale<compute_t<T>>(factor));
}

}  // namespace

void combine(View y, Sources x, ReduceOp op, double factor) {
  RT_CHECK_AS(DTypeError, y.dtype != DType::b8, "combine: booleans have no sum; convert them first");
  RT_CHECK(x.count >= 1 && x.count <= kMaxSources, "combine: expected 1 to ", kMaxSources, " sources, got ", x.count);
  dispatch(y.dtype, [&]<class T>() {
    if constexpr (!std::is_same_v<T, bool>) {
      constexpr int width = int(16 / sizeof(T));
      bool wide = aligned_width(width, y.as<const T>()) == width;
      for (int s = 0; s < x.count; ++s) wide = wide && aligned_width(width, static_cast<const T*>(x.data[s])) == width;
      wide ? combine_as<T, width>(y, x, op, factor) : combine_as<T, 1>(y, x, op, factor);
    }
  });
}

}  // namespace ringtape::cuda
