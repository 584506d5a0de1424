#include "kernels/fill.h"

#include <cmath>

#include "kernels/cpu/elementwise.h"

RT_ISA_BEGIN

void fill(View y, double value) {
  dispatch(y.dtype, [&]<class T>() {
    const T v = static_cast<T>(static_cast<compute_t<T>>(value));
    const Operand out = operands_of(std::array<View, 1>{y})[0];
    parallel_for(y.size(), kGrain, [&](int64_t begin, int64_t end) {
      out.for_each_run(begin, end - begin, [&](int64_t offset, int64_t step, int64_t count, int64_t) {
        T* to = reinterpret_cast<T*>(out.data) + offset;
        if (step == 1) std::fill_n(to, count, v);
        else
          for (int64_t i = 0; i < count; ++i) to[i * step] = v;
      });
    });
  });
}

void fill_range(View y, double first, double step) {
  dispatch(y.dtype, [&]<class T>() {
    for (int64_t i = 0; i < y.size(); ++i)
      y.as<T>()[i * y.strides[0]] = static_cast<T>(static_cast<compute_t<T>>(std::fma(double(i), step, first)));
  });
}

namespace {

// Calls f(b) for the blocks of four elements of y.
template <class F> void for_each_block(const View& y, F&& f) {
  parallel_for((y.size() + 3) / 4, kGrain / 16, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) f(b);
  });
}

}  // namespace

void fill_uniform(View y, RandomState state, double low, double high) {
  dispatch_float(y.dtype, [&]<class T>() {
    const Uniform<T> uniform(low, high);
    for_each_block(y, [&](int64_t b) {
      uniform.block(y.as<T>() + 4 * b, state, uint64_t(b), std::min<int64_t>(4, y.size() - 4 * b));
    });
  });
}

void fill_normal(View y, RandomState state, double mean, double deviation) {
  constexpr double kTwoPi = 6.283185307179586;
  dispatch_float(y.dtype, [&]<class T>() {
    for_each_block(y, [&](int64_t b) {
      const Philox4 r = philox(state.seed, uint64_t(state.stream), state.counter + uint64_t(b));
      for (int64_t i = 0; i < std::min<int64_t>(4, y.size() - 4 * b); ++i) {
        const uint32_t first = r.x[i & ~1], second = r.x[i | 1];
        const double radius = std::sqrt(-2 * std::log((double(first) + 1) * 0x1p-32));  // the log of (0, 1]
        const double angle = kTwoPi * double(second) * 0x1p-32;
        y.as<T>()[4 * b + i] = T(compute_t<T>(mean + deviation * radius * (i % 2 ? std::sin(angle) : std::cos(angle))));
      }
    });
  });
}

RT_ISA_END
