#include "kernels/cpu/gemm/gemm_panels.h"

#include <algorithm>

#include "kernels/cpu/vector/isa.h"
#include "kernels/cpu/vector/range.h"

RT_ISA_BEGIN

template <class T> void multiply_panels(const PanelProduct<T>& x) {
  const int64_t tiles = ceil_div(x.m, kTileRows);
  for (int64_t j = 0; j < x.n; j += kTileCols<T>)
    for (int64_t q = 0; q < tiles; ++q) {
      const Range rows = part_of(x.m, tiles, q);
      if (x.fetch && j == 0 && q + 1 < tiles)
        prefetch_rows(x.a + rows.end * x.a_stride, x.a_stride, part_of(x.m, tiles, q + 1).size(), x.k);
      TileArgs<T> t;
      t.k = x.k;
      t.a = x.a + rows.begin * (x.along_k ? x.a_stride : 1), t.a_stride = x.a_stride;
      t.b = x.b + j / kTileCols<T> * x.panel_stride, t.b_step = x.b_step;
      t.add = x.add ? x.add + rows.begin * x.add_stride + j : nullptr, t.add_stride = x.add_stride;
      t.c = x.c + rows.begin * x.c_stride + j, t.c_stride = x.c_stride;
      t.cols = std::min<int64_t>(x.n - j, kTileCols<T>);
      t.residual = x.residual ? x.residual + rows.begin * x.c_stride + j : nullptr, t.relu = x.relu;
      t.runs = x.runs, t.run_step = x.run_step;
      run_tile(rows.size(), x.along_k, t);
    }
}

template void multiply_panels(const PanelProduct<float>&);
template void multiply_panels(const PanelProduct<double>&);

RT_ISA_END
