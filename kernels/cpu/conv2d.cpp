#include "kernels/conv2d.h"

#include "core/parallel.h"
#include "kernels/cpu/isa.h"

RT_ISA_BEGIN

namespace {

struct Sizes {
  int64_t n, h, w, c, ho, wo, k, r, s, cg, kg;  // cg, kg: channels of a group
  Sizes(const View& y, const View& x, const View& wt)
      : n(x.dims[0]), h(x.dims[1]), w(x.dims[2]), c(x.dims[3]), ho(y.dims[1]), wo(y.dims[2]), k(wt.dims[0]), r(wt.dims[1]), s(wt.dims[2]),
        cg(wt.dims[3]), kg(k / (c / cg)) {}
};

}  // namespace

void conv2d_forward(View y, View x, View w, View b, Window p) {
  const Sizes z(y, x, w);
  dispatch_float(y.dtype, [&]<class T>() {
    using C = compute_t<T>;
    parallel_for(z.n * z.ho, 1, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row)
        for (int64_t j = 0; j < z.wo; ++j)
          for (int64_t k = 0; k < z.k; ++k) {
            const int64_t n = row / z.ho, i = row % z.ho, first = k / z.kg * z.cg;
            C sum = b.data ? C(b.as<T>()[k]) : C(0);
            for (int64_t r = 0; r < z.r; ++r)
              for (int64_t s = 0; s < z.s; ++s) {
                const int64_t h = i * p.stride_h + r * p.dilation_h - p.pad_h, v = j * p.stride_w + s * p.dilation_w - p.pad_w;
                if (h < 0 || h >= z.h || v < 0 || v >= z.w) continue;
                const T* in = x.as<T>() + ((n * z.h + h) * z.w + v) * z.c + first;
                const T* weights = w.as<T>() + ((k * z.r + r) * z.s + s) * z.cg;
                for (int64_t c = 0; c < z.cg; ++c) sum += C(in[c]) * C(weights[c]);
              }
            y.as<T>()[(row * z.wo + j) * z.k + k] = T(sum);
          }
    });
  });
}

void conv2d_backward_data(View dx, View dy, View w, Window p) {
  const Sizes z(dy, dx, w);
  dispatch_float(dx.dtype, [&]<class T>() {
    using C = compute_t<T>;
    parallel_for(z.n * z.h, 1, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row)
        for (int64_t v = 0; v < z.w; ++v)
          for (int64_t c = 0; c < z.c; ++c) {
            const int64_t n = row / z.h, h = row % z.h, group = c / z.cg;
            C sum = 0;
            for (int64_t r = 0; r < z.r; ++r)
              for (int64_t s = 0; s < z.s; ++s) {
                const int64_t i = h + p.pad_h - r * p.dilation_h, j = v + p.pad_w - s * p.dilation_w;
                if (i < 0 || j < 0 || i % p.stride_h || j % p.stride_w || i / p.stride_h >= z.ho || j / p.stride_w >= z.wo) continue;
                const T* g = dy.as<T>() + ((n * z.ho + i / p.stride_h) * z.wo + j / p.stride_w) * z.k;
                for (int64_t k = group * z.kg; k < (group + 1) * z.kg; ++k)
                  sum += C(g[k]) * C(w.as<T>()[((k * z.r + r) * z.s + s) * z.cg + c % z.cg]);
              }
            dx.as<T>()[(row * z.w + v) * z.c + c] = T(sum);
          }
    });
  });
}

void conv2d_backward_weights(View dw, View dy, View x, Window p) {
  const Sizes z(dy, x, dw);
  dispatch_float(dw.dtype, [&]<class T>() {
    using C = compute_t<T>;
    parallel_for(z.k * z.r * z.s, 1, [&](int64_t begin, int64_t end) {
      for (int64_t q = begin; q < end; ++q)
        for (int64_t c = 0; c < z.cg; ++c) {
          const int64_t k = q / (z.r * z.s), r = q / z.s % z.r, s = q % z.s, first = k / z.kg * z.cg;
          C sum = 0;
          for (int64_t n = 0; n < z.n; ++n)
            for (int64_t i = 0; i < z.ho; ++i)
              for (int64_t j = 0; j < z.wo; ++j) {
                const int64_t h = i * p.stride_h + r * p.dilation_h - p.pad_h, v = j * p.stride_w + s * p.dilation_w - p.pad_w;
                if (h < 0 || h >= z.h || v < 0 || v >= z.w) continue;
                sum += C(dy.as<T>()[((n * z.ho + i) * z.wo + j) * z.k + k]) * C(x.as<T>()[((n * z.h + h) * z.w + v) * z.c + first + c]);
              }
          dw.as<T>()[q * z.cg + c] = T(sum);
        }
    });
  });
}

RT_ISA_END
