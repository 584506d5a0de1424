#include "kernels/topk.h"

#include "kernels/cpu/vector/rows.h"

RT_ISA_BEGIN

void label_rank(View rank, View scores, View labels) {
  const int64_t rows = scores.dims[0], classes = scores.dims[1];
  dispatch_float(scores.dtype, [&]<class T>() {
    using C = compute_t<T>;
    parallel_for(rows, std::max<int64_t>(1, kGrain / std::max<int64_t>(1, classes)), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        const T* s = scores.as<T>() + r * classes;
        const int64_t label = labels.as<int64_t>()[r];
        int64_t beaten = 0;
        if (label < 0 || label >= classes || C(s[label]) != C(s[label])) beaten = classes;
        else
          for (int64_t c = 0; c < classes; ++c)
            beaten += C(s[c]) > C(s[label]) || (C(s[c]) == C(s[label]) && c < label);
        rank.as<int64_t>()[r] = beaten;
      }
    });
  });
}

RT_ISA_END
