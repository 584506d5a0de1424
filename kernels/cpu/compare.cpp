#include "kernels/compare.h"

#include "kernels/cpu/elementwise.h"

RT_ISA_BEGIN

namespace {

template <class F>
void compare(const F& f, const View& y, const View& a, const View& b) {
  if (a.dtype == DType::f16 || a.dtype == DType::bf16 || a.dtype == DType::f32) map_as<float>(f, y, a, b);
  else map_as<double>(f, y, a, b);
}

}  // namespace

#define X(name, condition)                                                     \
  void name##_forward(View y, View a, View b) {                                \
    compare([]<class T>(T a, T b) { return condition ? T(1) : T(0); }, y, a, b); \
  }
RT_COMPARE_OPS(X)
#undef X

RT_ISA_END
