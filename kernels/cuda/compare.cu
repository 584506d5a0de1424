#include "kernels/compare.h"

#include "kernels/cuda/elementwise.cuh"

namespace ringtape::cuda {
namespace {

template <class F> void compare(F f, View y, View a, View b) {
  if (!is_float(a.dtype)) map_any<int64_t>(f, y, a, b);
  else if (a.dtype == DType::f64 || b.dtype == DType::f64) map_any<double>(f, y, a, b);
  else map_any<float>(f, y, a, b);
}

}  // namespace

#define X(name, condition)                                                                         \
  namespace {                                                                                      \
  struct is_##name {                                                                               \
    template <class T> __device__ T operator()(T a, T b) const { return condition ? T(1) : T(0); } \
  };                                                                                               \
  }                                                                                                \
  void name##_forward(View y, View a, View b) { compare(is_##name{}, y, a, b); }
RT_COMPARE_OPS(X)
#undef X

}  // namespace ringtape::cuda
