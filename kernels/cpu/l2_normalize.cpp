#include "kernels/l2_normalize.h"

#include "kernels/cpu/vector/math.h"
#include "kernels/cpu/vector/rows.h"

RT_ISA_BEGIN

void l2_normalize_forward(View y, View norm, View x, double eps) {
  for_each_row(
      y,
      [&]<class C>(C* out, const C* in, int64_t n, int64_t r) {
        const C length = Math::sqrt(row_sum<C>(n, [in](int64_t i) { return in[i] * in[i]; }));
        norm.as<C>()[r] = length;
        const C scale = 1 / std::max(length, C(eps));
        for (int64_t i = 0; i < n; ++i) out[i] = in[i] * scale;
      },
      x);
}

void l2_normalize_backward(View dx, View y, View norm, View dy, double eps) {
  for_each_row(
      dx,
      [&]<class C>(C* d, const C* u, const C* g, int64_t n, int64_t r) {
        const C length = norm.as<C>()[r];
        const C dot = length > C(eps) ? row_sum<C>(n, [u, g](int64_t i) { return u[i] * g[i]; }) : C(0);
        const C scale = 1 / std::max(length, C(eps));
        for (int64_t i = 0; i < n; ++i) d[i] = (g[i] - u[i] * dot) * scale;
      },
      y, dy);
}

RT_ISA_END
