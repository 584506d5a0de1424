#include "kernels/cross_entropy.h"

#include "kernels/cpu/math.h"
#include "kernels/cpu/rows.h"

RT_ISA_BEGIN

void cross_entropy_forward(View loss, View lse, View logits, View labels, double smoothing) {
  const int64_t rows = logits.dims[0], classes = logits.dims[1];
  const int64_t* label = labels.as<int64_t>();
  for (int64_t r = 0; r < rows; ++r)
    RT_CHECK_AS(UsageError, label[r] >= 0 && label[r] < classes, "cross_entropy: label ", label[r], " of sample ", r,
                " with ", classes, " classes");
  dispatch_float(logits.dtype, [&]<class T>() {
    using C = compute_t<T>;
    parallel_for(rows, std::max<int64_t>(1, kGrain / 8 / std::max<int64_t>(1, classes)), [&](int64_t begin, int64_t end) {
      std::vector<C> buffer(std::is_same_v<T, C> ? 0 : size_t(classes));
      for (int64_t r = begin; r < end; ++r) {
        const C* x = Row<T>::read(logits.as<T>() + r * classes, classes, buffer.data());
        const C top = row_max(x, classes), s = C(smoothing);
        const C sum = row_sum<C>(classes, [x, top](int64_t i) { return Math::exp(x[i] - top); });
        const C mean = s == 0 ? C(0) : row_sum<C>(classes, [x](int64_t i) { return x[i]; }) / C(classes);
        lse.as<C>()[r] = top + Math::log(sum);
        loss.as<C>()[r] = Math::log(sum) - (1 - s) * (x[label[r]] - top) - s * (mean - top);
      }
    });
  });
}

void cross_entropy_backward(View dlogits, View logits, View lse, View labels, View dloss, double smoothing, double scale) {
  const int64_t classes = logits.dims[1];
  dispatch_float(dloss.dtype, [&]<class L>() {
    for_each_row(dlogits, [&]<class C>(C* d, const C* x, int64_t n, int64_t r) {
      const C g = C(compute_t<L>(dloss.as<L>()[r * dloss.strides[0]])) * C(scale), shift = lse.as<C>()[r];
      const C off = C(smoothing) / C(classes);
      for (int64_t i = 0; i < n; ++i) d[i] = g * (Math::exp(x[i] - shift) - off);
      d[labels.as<int64_t>()[r]] -= g * (1 - C(smoothing));
    }, logits);
  });
}

RT_ISA_END
