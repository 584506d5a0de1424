#include "kernels/triangle.h"

#include "kernels/cuda/vector.cuh"

namespace ringtape::cuda {
namespace {

template <class U>
__global__ void keep_triangle(U* y, const U* x, int64_t total, int64_t rows, int64_t columns, int64_t diagonal,
                              bool upper) {
  for (int64_t k = thread_in_grid(); k < total; k += threads_in_grid()) {
    const int64_t i = k / columns % rows, j = k % columns;
    const bool kept = upper ? j - i >= diagonal : j - i <= diagonal;
    y[k] = kept ? x[k] : U(0);
  }
}

}  // namespace

void triangle_forward(View y, View x, int64_t diagonal, bool upper) {
  const int64_t total = y.size();
  if (total == 0) return;
  dispatch(y.dtype, [&]<class T>() {
    using U = bits_t<T>;
    launch<keep_triangle<U>>(y.device, covering(y.device, total), y.as<U>(), x.as<U>(), total, y.dims[1], y.dims[2],
                             diagonal, upper);
  });
}

}  // namespace ringtape::cuda
