#include "kernels/pool.h"

#include "kernels/cuda/elementwise.cuh"

namespace ringtape::cuda {
namespace {

// A thread computes kWidth neighbouring channels of one position of `to` by gathering, so that no two threads write to
// the same element.
struct Pool {
  PoolShape shape;
  Divider packs, columns, rows;  // packs of channels; rows and columns of `to`

  Pool(const PoolShape& s, const View& to, int width)
      : shape(s), packs(uint32_t(to.dims[3] / width)), columns(uint32_t(to.dims[2])), rows(uint32_t(to.dims[1])) {}
};

struct Place {
  int64_t n, i, j, c;
};

template <int kWidth> __device__ Place place_of(const Pool& p, uint32_t number) {
  const uint32_t pixel = p.packs.quotient(number), line = p.columns.quotient(pixel), n = p.rows.quotient(line);
  return {n, line - n * p.rows.d, pixel - line * p.columns.d, int64_t(number - pixel * p.packs.d) * kWidth};
}

// Offset of a position in x, or in y.
__device__ inline int64_t in_image(const PoolShape& s, int64_t n, int64_t h, int64_t w) {
  return ((n * s.h + h) * s.w + w) * s.channels;
}
__device__ inline int64_t in_result(const PoolShape& s, int64_t n, int64_t i, int64_t j) {
  return ((n * s.rows + i) * s.columns + j) * s.channels;
}

template <class T, int kWidth> __global__ void max_pool(T* y, int32_t* index, const T* x, Pool p, uint32_t packs) {
  using C = compute_t<T>;
  const PoolShape& s = p.shape;
  for (int64_t number = thread_in_grid(); number < packs; number += threads_in_grid()) {
    const Place at = place_of<kWidth>(p, uint32_t(number));
    Vec<T, kWidth> top;
    Vec<int32_t, kWidth> where;
#pragma unroll
    for (int k = 0; k < kWidth; ++k) top.x[k] = T(-std::numeric_limits<C>::infinity()), where.x[k] = kNoPlace;
    s.for_each_place(at.i, at.j, [&](int64_t h, int64_t w) {
      const Vec<T, kWidth> v = load<kWidth>(x + in_image(s, at.n, h, w) + at.c);
#pragma unroll
      for (int k = 0; k < kWidth; ++k) {
        const C now = C(v.x[k]);
        if (where.x[k] >= 0 && !(now > C(top.x[k])) && now == now) continue;
        top.x[k] = v.x[k];
        where.x[k] = int32_t(h * s.w + w);
      }
    });
    const int64_t to = in_result(s, at.n, at.i, at.j) + at.c;
    store(y + to, top);
    store(index + to, where);
  }
}

template <class T, int kWidth>
__global__ void max_pool_gradient(T* dx, const T* dy, const int32_t* index, Pool p, uint32_t packs) {
  using C = compute_t<T>;
  const PoolShape& s = p.shape;
  for (int64_t number = thread_in_grid(); number < packs; number += threads_in_grid()) {
    const Place at = place_of<kWidth>(p, uint32_t(number));
    C sum[kWidth] = {};
    s.for_each_window(at.i, at.j, [&](int64_t i, int64_t j) {
      const int64_t from = in_result(s, at.n, i, j) + at.c;
      const Vec<T, kWidth> v = load<kWidth>(dy + from);
      const Vec<int32_t, kWidth> where = load<kWidth>(index + from);
#pragma unroll
      for (int k = 0; k < kWidth; ++k) sum[k] += where.x[k] == int32_t(at.i * s.w + at.j) ? C(v.x[k]) : C(0);
    });
    Vec<T, kWidth> out;
#pragma unroll
    for (int k = 0; k < kWidth; ++k) out.x[k] = T(sum[k]);
    store(dx + in_image(s, at.n, at.i, at.j) + at.c, out);
  }
}

template <class T, int kWidth>
__device__ void add_scaled(compute_t<T> (&sum)[kWidth], const T* from, compute_t<T> scale) {
  const Vec<T, kWidth> v = load<kWidth>(from);
#pragma unroll
  for (int k = 0; k < kWidth; ++k) sum[k] += compute_t<T>(v.x[k]) * scale;
}

// Forward, or backward from dy to dx.
template <class T, int kWidth, bool forward> __global__ void avg_pool(T* to, const T* from, Pool p, uint32_t packs) {
  using C = compute_t<T>;
  const PoolShape& s = p.shape;
  const C scale = 1 / C(s.r * s.s);
  for (int64_t number = thread_in_grid(); number < packs; number += threads_in_grid()) {
    const Place at = place_of<kWidth>(p, uint32_t(number));
    C sum[kWidth] = {};
    const auto add = [&](int64_t i, int64_t j) {
      add_scaled<T>(sum, from + (forward ? in_image(s, at.n, i, j) : in_result(s, at.n, i, j)) + at.c, scale);
    };
    if constexpr (forward) s.for_each_place(at.i, at.j, add);
    else s.for_each_window(at.i, at.j, add);
    Vec<T, kWidth> out;
#pragma unroll
    for (int k = 0; k < kWidth; ++k) out.x[k] = T(sum[k]);
    store(to + (forward ? in_result(s, at.n, at.i, at.j) : in_image(s, at.n, at.i, at.j)) + at.c, out);
  }
}

// Calls f<T, kWidth>(part of `to`, of the other side and of the index, number of its packs, grid) for parts of whole
// images that 32-bit counts can cover.
template <class F> void by_width(const View& to, const View& from, const View& index, const F& f) {
  if (to.size() == 0) return;
  dispatch_float(to.dtype, [&]<class T>() {
    constexpr int wide = sizeof(T) == 8 ? 1 : 4;  // channels; four of the index are 16 bytes
    const auto run = [&]<int kWidth>() {
      const int64_t images = std::max<int64_t>(1, kMaxElements * kWidth / (to.size() / to.dims[0]));
      const auto part = [&](View v, int64_t n) {
        if (v.data) v.data = v.as<char>() + n * (v.size() / v.dims[0]) * int64_t(size_of(v.dtype));
        v.dims[0] = std::min(images, v.dims[0] - n);
        return v;
      };
      for (int64_t n = 0; n < to.dims[0]; n += images) {
        const int64_t packs = part(to, n).size() / kWidth;
        f.template operator()<T, kWidth>(part(to, n), part(from, n), index.data ? part(index, n) : index,
                                         uint32_t(packs), covering(to.device, packs));
      }
    };
    const bool fits = to.dims[3] % wide == 0 && aligned_width(wide, to.as<T>(), from.as<T>()) == wide &&
                      aligned_width(wide, index.as<int32_t>()) == wide;
    fits ? run.template operator()<wide>() : run.template operator()<1>();
  });
}

}  // namespace

void max_pool2d_forward(View y, View index, View x, int64_t r, int64_t s, Window window) {
  by_width(y, x, index, [&]<class T, int kWidth>(View to, View from, View where, uint32_t packs, Grid grid) {
    const Pool p(PoolShape(to, from, r, s, window), to, kWidth);
    launch<max_pool<T, kWidth>>(y.device, grid, to.as<T>(), where.as<int32_t>(), from.as<T>(), p, packs);
  });
}

void max_pool2d_backward(View dx, View dy, View index, int64_t r, int64_t s, Window window) {
  by_width(dx, dy, index, [&]<class T, int kWidth>(View to, View from, View where, uint32_t packs, Grid grid) {
    const Pool p(PoolShape(from, to, r, s, window), to, kWidth);
    launch<max_pool_gradient<T, kWidth>>(dx.device, grid, to.as<T>(), from.as<T>(), where.as<int32_t>(), p, packs);
  });
}

void avg_pool2d_forward(View y, View x, int64_t r, int64_t s, Window window) {
  by_width(y, x, View{}, [&]<class T, int kWidth>(View to, View from, View, uint32_t packs, Grid grid) {
    const Pool p(PoolShape(to, from, r, s, window), to, kWidth);
    launch<avg_pool<T, kWidth, true>>(y.device, grid, to.as<T>(), from.as<T>(), p, packs);
  });
}

void avg_pool2d_backward(View dx, View dy, int64_t r, int64_t s, Window window) {
  by_width(dx, dy, View{}, [&]<class T, int kWidth>(View to, View from, View, uint32_t packs, Grid grid) {
    const Pool p(PoolShape(from, to, r, s, window), to, kWidth);
    launch<avg_pool<T, kWidth, false>>(dx.device, grid, to.as<T>(), from.as<T>(), p, packs);
  });
}

}  // namespace ringtape::cuda
