#include "kernels/cpu/images/resample.h"

#include "kernels/resample.h"

RT_ISA_BEGIN

void resample(View y, View x, Scaling scaling) {
  if (y.size() == 0) return;
  constexpr int64_t kUsual = 1 << 14;  // a thread keeps its buffers unless a side is longer
  thread_local Resampler kept;
  Resampler once;
  const bool usual = x.dims[0] <= kUsual && x.dims[1] <= kUsual && y.dims[0] <= kUsual && y.dims[1] <= kUsual;
  Resampler& resampler = usual ? kept : once;
  resampler.begin(x.as<uint8_t>(), x.strides[0], x.dims[2], {scaling.rows, scaling.top, y.dims[0]},
                  {scaling.columns, scaling.left, y.dims[1]});
  for (int64_t row = 0; row < y.dims[0]; ++row) resampler.row(row, y.as<uint8_t>() + row * y.dims[1] * y.dims[2]);
}

RT_ISA_END
