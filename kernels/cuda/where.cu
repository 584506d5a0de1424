#include "kernels/where.h"

#include "kernels/cuda/elementwise.cuh"

namespace ringtape::cuda {
namespace {

struct Choose {
  template <class T> __device__ T operator()(T condition, T a, T b) const { return condition != 0 ? a : b; }
};

}  // namespace

void where_forward(View y, View cond, View a, View b) {
  if (!is_float(y.dtype)) return map_any<int64_t>(Choose{}, y, cond, a, b);
  dispatch_float(y.dtype, [&]<class T>() { map_as<T, bool, T, T>(Choose{}, y, cond, a, b); });
}

}  // namespace ringtape::cuda
