#include "kernels/combine.h"

#include "core/parallel.h"
#include "kernels/cpu/vector/vector.h"

RT_ISA_BEGIN

namespace {

constexpr int64_t kShare = 1 << 15;

// The type for sums and products of T: for integers the unsigned type, which wraps around.
template <class T, bool = std::is_integral_v<T>> struct WrapOf { using type = std::make_unsigned_t<T>; };
template <class T> struct WrapOf<T, false> { using type = T; };
template <class T> using Wrap = typename WrapOf<T>::type;

// a op b for two vectors, or for two numbers (then V and W are C). NaN on either side gives NaN.
template <ReduceOp op, class V, class W> RT_INLINE V combined(V a, V b) {
  if constexpr (op == ReduceOp::max) return max_or_nan(a, b);
  else if constexpr (op == ReduceOp::min) {
    const V least = b < a ? b : a;
    return b != b ? b : least;
  } else if constexpr (op == ReduceOp::product) return V(W(a) * W(b));
  else return V(W(a) + W(b));
}

// Computes `count` vectors of y from all sources, in registers, so that y may be one of the sources.
template <class T, ReduceOp op, int count>
RT_INLINE void vectors(T* y, const Sources& x, int64_t at, compute_t<T> factor) {
  using C = compute_t<T>;
  Vec<C> all[count];
  const T* first = static_cast<const T*>(x.data[0]) + at;
#pragma GCC unroll 8
  for (int v = 0; v < count; ++v) all[v] = load_whole(first + v * kLanes<C>);
  for (int s = 1; s < x.count; ++s) {
    const T* source = static_cast<const T*>(x.data[s]) + at;
#pragma GCC unroll 8
    for (int v = 0; v < count; ++v)
      all[v] = combined<op, Vec<C>, Vec<Wrap<C>>>(all[v], load_whole(source + v * kLanes<C>));
  }
#pragma GCC unroll 8
  for (int v = 0; v < count; ++v) {
    if constexpr (!std::is_integral_v<T>) all[v] *= factor;
    store_whole(y + at + v * kLanes<C>, all[v]);
  }
}

template <class T, ReduceOp op> void range(T* y, const Sources& x, int64_t begin, int64_t end, compute_t<T> factor) {
  using C = compute_t<T>;
  constexpr int kUnroll = 4, kLane = kLanes<C>;
  int64_t i = begin;
  for (; i + kUnroll * kLane <= end; i += kUnroll * kLane) vectors<T, op, kUnroll>(y, x, i, factor);
  for (; i + kLane <= end; i += kLane) vectors<T, op, 1>(y, x, i, factor);
  for (; i < end; ++i) {
    C all = C(static_cast<const T*>(x.data[0])[i]);
    for (int s = 1; s < x.count; ++s) all = combined<op, C, Wrap<C>>(all, C(static_cast<const T*>(x.data[s])[i]));
    if constexpr (!std::is_integral_v<T>) all *= factor;
    y[i] = T(all);
  }
}

template <class T, ReduceOp op> void combine_as(View y, const Sources& x, double factor) {
  constexpr int64_t kBlock = 4096;  // elements: they are divided while in the cache
  const int64_t divisor = std::is_integral_v<T> ? int64_t(1 / factor + 0.5) : 1;
  T* const out = y.as<T>();
  parallel_for(y.size(), kShare, [&](int64_t begin, int64_t end) {
    if (divisor == 1) return range<T, op>(out, x, begin, end, compute_t<T>(factor));
    for (; begin < end; begin += kBlock) {
      const int64_t stop = std::min(end, begin + kBlock);
      range<T, op>(out, x, begin, stop, 1);
      if constexpr (std::is_integral_v<T>)
        for (int64_t i = begin; i < stop; ++i) out[i] = T(out[i] / divisor);
    }
  });
}

}  // namespace

void combine(View y, Sources x, ReduceOp op, double factor) {
  RT_CHECK_AS(DTypeError, y.dtype != DType::b8, "combine: booleans have no sum; convert them first");
  RT_CHECK(x.count >= 1 && x.count <= kMaxSources, "combine: expected 1 to ", kMaxSources, " sources, got ", x.count);
  dispatch(y.dtype, [&]<class T>() {
    if constexpr (!std::is_same_v<T, bool>) {
      switch (op) {
        case ReduceOp::max: return combine_as<T, ReduceOp::max>(y, x, factor);
        case ReduceOp::min: return combine_as<T, ReduceOp::min>(y, x, factor);
        case ReduceOp::product: return combine_as<T, ReduceOp::product>(y, x, factor);
        default: return combine_as<T, ReduceOp::sum>(y, x, factor);
      }
    }
  });
}

RT_ISA_END
