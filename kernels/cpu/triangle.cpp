#include "kernels/triangle.h"

#include <algorithm>

#include "kernels/cpu/elementwise.h"

RT_ISA_BEGIN

void triangle_forward(View y, View x, int64_t diagonal, bool upper) {
  const int64_t rows = y.dims[1], columns = y.dims[2];
  dispatch(y.dtype, [&]<class T>() {
    using U = bits_t<T>;
    parallel_for(y.dims[0] * rows, std::max<int64_t>(1, kGrain / std::max<int64_t>(1, columns)),
                 [&](int64_t begin, int64_t end) {
                   for (int64_t k = begin; k < end; ++k) {
                     const int64_t i = k % rows;
                     // The columns in front of `middle` are kept, or with `upper` those from it on.
                     const int64_t middle = std::clamp<int64_t>(i + diagonal + (upper ? 0 : 1), 0, columns);
                     const U* const from = x.as<U>() + k * columns;
                     U* const to = y.as<U>() + k * columns;
                     const int64_t first = upper ? middle : 0, last = upper ? columns : middle;
                     std::fill(to, to + first, U(0));
                     std::copy(from + first, from + last, to + first);
                     std::fill(to + last, to + columns, U(0));
                   }
                 });
  });
}

RT_ISA_END
