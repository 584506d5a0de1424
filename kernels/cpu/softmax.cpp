#include "kernels/softmax.h"

#include "kernels/cpu/vector/math.h"
#include "kernels/cpu/vector/rows.h"

RT_ISA_BEGIN

void softmax_forward(View y, View x) {
  for_each_row(
      y,
      []<class C>(C* out, const C* in, int64_t n, int64_t) {
        const C top = row_max(in, n);
        for (int64_t i = 0; i < n; ++i) out[i] = Math::exp(in[i] - top);
        const C scale = 1 / row_sum<C>(n, [out](int64_t i) { return out[i]; });
        for (int64_t i = 0; i < n; ++i) out[i] *= scale;
      },
      x);
}

void softmax_backward(View dx, View y, View dy) {
  for_each_row(
      dx,
      []<class C>(C* d, const C* p, const C* g, int64_t n, int64_t) {
        const C dot = row_sum<C>(n, [p, g](int64_t i) { return p[i] * g[i]; });
        for (int64_t i = 0; i < n; ++i) d[i] = p[i] * (g[i] - dot);
      },
      y, dy);
}

void log_softmax_forward(View y, View x) {
  for_each_row(
      y,
      []<class C>(C* out, const C* in, int64_t n, int64_t) {
        const C top = row_max(in, n);
        const C log_sum = Math::log(row_sum<C>(n, [in, top](int64_t i) { return Math::exp(in[i] - top); }));
        for (int64_t i = 0; i < n; ++i) out[i] = (in[i] - top) - log_sum;  // top + log_sum would lose digits to top
      },
      x);
}

void log_softmax_backward(View dx, View y, View dy) {
  for_each_row(
      dx,
      []<class C>(C* d, const C* logp, const C* g, int64_t n, int64_t) {
        const C sum = row_sum<C>(n, [g](int64_t i) { return g[i]; });
        for (int64_t i = 0; i < n; ++i) d[i] = g[i] - Math::exp(logp[i]) * sum;
      },
      y, dy);
}

RT_ISA_END
