#include "kernels/cross_entropy.h"

#include "kernels/cpu/math.h"
#include "kernels/cpu/rows.h"

RT_ISA_BEGIN

void cross_entropy_forward(View loss, View norms, View logits, View labels, double smoothing) {
  const int64_t rows = logits.dims[0], classes = logits.dims[1];
  const int64_t* label = labels.as<int64_t>();
  for (int64_t r = 0; r < rows; ++r)
    RT_CHECK_AS(UsageError, label[r] >= 0 && label[r] < classes, "cross_entropy: label ", label[r], " of sample ", r,
                " with ", classes, " classes");
  dispatch_float(logits.dtype, [&]<class T>() {
    using C = compute_t<T>;
    const int64_t grain = std::max<int64_t>(1, kGrain / 8 / std::max<int64_t>(1, classes));
    parallel_for(rows, grain, [&](int64_t begin, int64_t end) {
      std::vector<C> buffer(std::is_same_v<T, C> ? 0 : size_t(classes));
      for (int64_t r = begin; r < end; ++r) {
        const C* x = Row<T>::read(logits.as<T>() + r * classes, classes, buffer.data());
        const C top = row_max(x, classes), s = C(smoothing);
        const C sum = row_sum<C>(classes, [x, top](int64_t i) { return Math::exp(x[i] - top); });
        norms.as<C>()[2 * r] = top, norms.as<C>()[2 * r + 1] = sum;
        // Distances from the top are halved, which is exact, as they may be twice the largest number.
        const C half_top = top / 2, share = 2 * s / C(classes);
        const C spread =
            s == 0 ? C(0) : row_sum<C>(classes, [=](int64_t i) { return share * (x[i] / 2 - half_top); });
        loss.as<C>()[r] = Math::log(sum) - 2 * (1 - s) * (x[label[r]] / 2 - half_top) - spread;
      }
    });
  });
}

void cross_entropy_backward(View dlogits, View logits, View norms, View labels, View dloss, double smoothing,
                            double scale) {
  const int64_t classes = logits.dims[1];
  dispatch_float(dloss.dtype, [&]<class L>() {
    for_each_row(dlogits, [&]<class C>(C* d, const C* x, int64_t n, int64_t r) {
      const C g = C(compute_t<L>(dloss.as<L>()[r * dloss.strides[0]])) * C(scale);
      const C top = norms.as<C>()[2 * r], inverse = 1 / norms.as<C>()[2 * r + 1];
      const C off = C(smoothing) / C(classes);
      for (int64_t i = 0; i < n; ++i) d[i] = g * (Math::exp(x[i] - top) * inverse - off);
      d[labels.as<int64_t>()[r]] -= g * (1 - C(smoothing));
    }, logits);
  });
}

RT_ISA_END
