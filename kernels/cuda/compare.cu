#include "kernels/compare.h"

#include "kernels/cuda/elementwise.cuh"

namespace ringtape::cuda {
namespace {

template <class F>
void compare(F f, View y, View a, View b) {
  if (a.dtype == DType::f16 || a.dtype == DType::bf16 || a.dtype == DType::f32) map_any<float>(f, y, a, b);
  else map_any<double>(f, y, a, b);
}

}  // namespace

#define X(name, condition)                                                    \
  namespace {                                                                 \
  struct is_##name {                                                          \
    template <class T>                                                        \
    __device__ T operator()(T a, T b) const { return condition ? T(1) : T(0); } \
  };                                                                          \
  }                                                                           \
  void name##_forward(View y, View a, View b) { compare(is_##name{}, y, a, b); }
RT_COMPARE_OPS(X)
#undef X

}  // namespace ringtape::cuda
