#include "kernels/pool.h"

#include <limits>

#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/vector/rows.h"

RT_ISA_BEGIN

namespace {

// Calls f(out, n, i, j) for each position of `to` (N, H, W, C), where out has C elements of the compute type. Each call
// reads about `work` times C elements.
template <class T, class F> void for_each_place(const View& to, int64_t work, const F& f) {
  using C = compute_t<T>;
  const int64_t channels = to.dims[3], columns = to.dims[2], lines = to.dims[0] * to.dims[1];
  const int64_t line = std::max<int64_t>(1, columns * channels * work);
  parallel_for(lines, std::max<int64_t>(1, kGrain / line), [&](int64_t begin, int64_t end) {
    std::vector<C> buffer(std::is_same_v<T, C> ? 0 : size_t(channels));
    for (int64_t l = begin; l < end; ++l)
      for (int64_t j = 0; j < columns; ++j) {
        T* const place = to.as<T>() + (l * columns + j) * channels;
        C* const out = Row<T>::open(place, buffer.data());
        f(out, l / to.dims[1], l % to.dims[1], j);
        Row<T>::close(place, channels, out);
      }
  });
}

template <class T, class C> void keep_larger(C* top, int32_t* index, const T* x, int32_t place, int64_t n) {
  RT_IVDEP
  for (int64_t c = 0; c < n; ++c) {
    const C v = C(x[c]);
    const bool take = (v > top[c]) | (v != v);
    top[c] = take ? v : top[c];
    index[c] = take ? place : index[c];
  }
}

template <class T, class C> void add_where(C* dx, const T* dy, const int32_t* index, int32_t place, int64_t n) {
  RT_IVDEP
  for (int64_t c = 0; c < n; ++c) dx[c] += index[c] == place ? C(dy[c]) : C(0);
}

template <class T, class C> void add_scaled(C* y, const T* x, C scale, int64_t n) {
  RT_IVDEP
  for (int64_t c = 0; c < n; ++c) y[c] += C(x[c]) * scale;
}

}  // namespace

void max_pool2d_forward(View y, View index, View x, int64_t r, int64_t s, Window window) {
  const PoolShape p(y, x, r, s, window);
  dispatch_float(y.dtype, [&]<class T>() {
    for_each_place<T>(y, r * s, [&]<class C>(C* top, int64_t n, int64_t i, int64_t j) {
      int32_t* const at = index.as<int32_t>() + ((n * p.rows + i) * p.columns + j) * p.channels;
      bool first = true;
      p.for_each_place(i, j, [&](int64_t h, int64_t w) {
        const T* from = x.as<T>() + ((n * p.h + h) * p.w + w) * p.channels;
        const auto place = int32_t(h * p.w + w);
        if (!first) return keep_larger<T, C>(top, at, from, place, p.channels);
        for (int64_t c = 0; c < p.channels; ++c) top[c] = C(from[c]);
        std::fill_n(at, p.channels, place);
        first = false;
      });
      if (!first) return;
      std::fill_n(top, p.channels, -std::numeric_limits<C>::infinity());
      std::fill_n(at, p.channels, kNoPlace);
    });
  });
}

void max_pool2d_backward(View dx, View dy, View index, int64_t r, int64_t s, Window window) {
  const PoolShape p(dy, dx, r, s, window);
  dispatch_float(dx.dtype, [&]<class T>() {
    for_each_place<T>(dx, r * s, [&]<class C>(C* sum, int64_t n, int64_t h, int64_t w) {
      std::fill_n(sum, p.channels, C(0));
      p.for_each_window(h, w, [&](int64_t i, int64_t j) {
        const int64_t at = ((n * p.rows + i) * p.columns + j) * p.channels;
        add_where<T, C>(sum, dy.as<T>() + at, index.as<int32_t>() + at, int32_t(h * p.w + w), p.channels);
      });
    });
  });
}

void avg_pool2d_forward(View y, View x, int64_t r, int64_t s, Window window) {
  const PoolShape p(y, x, r, s, window);
  dispatch_float(y.dtype, [&]<class T>() {
    for_each_place<T>(y, r * s, [&]<class C>(C* mean, int64_t n, int64_t i, int64_t j) {
      std::fill_n(mean, p.channels, C(0));
      p.for_each_place(i, j, [&](int64_t h, int64_t w) {
        add_scaled<T, C>(mean, x.as<T>() + ((n * p.h + h) * p.w + w) * p.channels, 1 / C(r * s), p.channels);
      });
    });
  });
}

void avg_pool2d_backward(View dx, View dy, int64_t r, int64_t s, Window window) {
  const PoolShape p(dy, dx, r, s, window);
  dispatch_float(dx.dtype, [&]<class T>() {
    for_each_place<T>(dx, r * s, [&]<class C>(C* sum, int64_t n, int64_t h, int64_t w) {
      std::fill_n(sum, p.channels, C(0));
      p.for_each_window(h, w, [&](int64_t i, int64_t j) {
        add_scaled<T, C>(sum, dy.as<T>() + ((n * p.rows + i) * p.columns + j) * p.channels, 1 / C(r * s), p.channels);
      });
    });
  });
}

RT_ISA_END
