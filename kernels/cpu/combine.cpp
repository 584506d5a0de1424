#include "kernels/combine.h"

#include "core/parallel.h"
#include "kernels/cpu/isa.h"

RT_ISA_BEGIN

namespace {

constexpr int64_t kBlock = 1024, kShare = 1 << 15;

template <class C>
C combined(C a, C b, ReduceOp op) {
  switch (op) {
    case ReduceOp::max: return a > b || a != a ? a : b;
    case ReduceOp::min: return a < b || a != a ? a : b;
    case ReduceOp::product: return C(a * b);
    default: return C(a + b);
  }
}

template <class T, ReduceOp op>
void block(T* y, const Sources& x, int64_t begin, int64_t n, double factor) {
  using C = compute_t<T>;
  C sum[kBlock];
  const T* first = static_cast<const T*>(x.data[0]) + begin;
  for (int64_t i = 0; i < n; ++i) sum[i] = C(first[i]);
  for (int s = 1; s < x.count; ++s) {
    const T* source = static_cast<const T*>(x.data[s]) + begin;
    for (int64_t i = 0; i < n; ++i) sum[i] = combined<C>(sum[i], C(source[i]), op);
  }
  if constexpr (std::is_integral_v<T>) {
    const C divisor = C(1 / factor + 0.5);
    if (divisor != 1)
      for (int64_t i = 0; i < n; ++i) sum[i] = C(sum[i] / divisor);
  } else if (factor != 1) {
    for (int64_t i = 0; i < n; ++i) sum[i] *= C(factor);
  }
  for (int64_t i = 0; i < n; ++i) y[begin + i] = T(sum[i]);
}

}  // namespace

void combine(View y, Sources x, ReduceOp op, double factor) {
  RT_CHECK_AS(DTypeError, y.dtype != DType::b8, "combine: booleans have no sum; convert them first");
  dispatch(y.dtype, [&]<class T>() {
    const auto run = [&]<ReduceOp o>() {
      parallel_for(y.size(), kShare, [&](int64_t begin, int64_t end) {
        for (; begin < end; begin += kBlock) block<T, o>(y.as<T>(), x, begin, std::min(kBlock, end - begin), factor);
      });
    };
    if constexpr (!std::is_same_v<T, bool>) {
      switch (op) {
        case ReduceOp::max: return run.template operator()<ReduceOp::max>();
        case ReduceOp::min: return run.template operator()<ReduceOp::min>();
        case ReduceOp::product: return run.template operator()<ReduceOp::product>();
        default: return run.template operator()<ReduceOp::sum>();
      }
    }
  });
}

RT_ISA_END
