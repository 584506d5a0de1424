#include "kernels/cpu/vector/rows.h"

#include <algorithm>
#include <vector>

#include "core/parallel.h"
#include "kernels/cpu/vector/isa.h"

RT_ISA_BEGIN

template <class C> void map_rows(RowFunction<C> function, const void* f, const View& y, const View* x, size_t inputs) {
  const int64_t columns = x->dims[x->rank - 1], rows = columns ? x->size() / columns : 0;
  const int64_t grain = std::max<int64_t>(1, kGrain / 8 / std::max<int64_t>(columns, 1));
  dispatch_float(x->dtype, [&]<class T>() {
    if constexpr (std::is_same_v<compute_t<T>, C>)
      parallel_for(rows, grain, [&](int64_t begin, int64_t end) {
        std::vector<C> buffers(std::is_same_v<T, C> ? 0 : (inputs + 1) * size_t(columns));
        std::vector<const C*> in(inputs);
        for (int64_t r = begin; r < end; ++r) {
          C* buffer = buffers.data();
          T* const to = y.data ? y.as<T>() + r * columns : nullptr;
          C* const out = Row<T>::open(to, buffer);
          for (size_t k = 0; k < inputs; ++k)
            in[k] = Row<T>::read(x[k].as<T>() + r * columns, columns, buffer += buffers.empty() ? 0 : columns);
          function(f, out, in.data(), columns, r);
          if (to) Row<T>::close(to, columns, out);
        }
      });
  });
}

template void map_rows(RowFunction<float>, const void*, const View&, const View*, size_t);
template void map_rows(RowFunction<double>, const void*, const View&, const View*, size_t);

RT_ISA_END
