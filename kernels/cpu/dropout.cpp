#include "kernels/dropout.h"

#include "kernels/cpu/elementwise.h"

RT_ISA_BEGIN

void dropout_forward(View y, View x, double p, RandomState state) {
  dispatch_float(y.dtype, [&]<class T>() {
    using C = compute_t<T>;
    const C scale = p < 1 ? C(1 / (1 - p)) : C(0);
    const int64_t n = y.size();
    parallel_for((n + 3) / 4, kGrain / 16, [&](int64_t begin, int64_t end) {
      for (int64_t b = begin; b < end; ++b) {
        const Philox4 r = philox(state.seed, uint64_t(state.stream), state.counter + uint64_t(b));
        for (int64_t i = 4 * b; i < std::min(4 * b + 4, n); ++i)
          y.as<T>()[i] = uniform_from_bits(r.x[i % 4]) >= float(p) ? T(C(x.as<T>()[i]) * scale) : T(C(0));
      }
    });
  });
}

RT_ISA_END
