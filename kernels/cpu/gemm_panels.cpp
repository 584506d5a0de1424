#include "kernels/cpu/gemm_panels.h"

#include <algorithm>

#include "kernels/cpu/isa.h"
#include "kernels/cpu/range.h"

RT_ISA_BEGIN

template <class T>
void multiply_panels(const PanelProduct<T>& x) {
  const int64_t tiles = ceil_div(x.m, kTileRows);
  for (int64_t q = 0; q < tiles; ++q) {
    const Range rows = part_of(x.m, tiles, q);
    const size_t r = size_t(rows.size() - 1);
    const TileFn<T> wide = x.along_k ? kTiles<T, 2, true>[r] : kTiles<T, 2, false>[r];
    const TileFn<T> narrow = x.along_k ? kTiles<T, 1, true>[r] : kTiles<T, 1, false>[r];
    TileArgs<T> t{};
    t.k = x.k;
    t.a = x.a + rows.begin * (x.along_k ? x.a_stride : 1), t.a_stride = x.a_stride;
    t.b_step = kTileCols<T>;
    t.add_stride = x.add_stride, t.c_stride = x.c_stride;
    for (int64_t j = 0; j < x.n; j += kTileCols<T>) {
      t.b = x.b + j / kTileCols<T> * x.panel_stride;
      t.add = x.add ? x.add + rows.begin * x.add_stride + j : nullptr;
      t.c = x.c + rows.begin * x.c_stride + j;
      t.cols = std::min<int64_t>(x.n - j, kTileCols<T>);
      (t.cols > kLanes<T> ? wide : narrow)(t);
    }
  }
}

template void multiply_panels(const PanelProduct<float>&);
template void multiply_panels(const PanelProduct<double>&);

RT_ISA_END
