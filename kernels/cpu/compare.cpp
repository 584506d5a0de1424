#include "kernels/compare.h"

#include "kernels/cpu/elementwise.h"

RT_ISA_BEGIN

namespace {

template <class F> void compare(const F& f, const View& y, const View& a, const View& b) {
  if (!is_float(a.dtype)) map_as<int64_t>(f, y, a, b);
  else if (a.dtype == DType::f64 || b.dtype == DType::f64) map_as<double>(f, y, a, b);
  else map_as<float>(f, y, a, b);
}

}  // namespace

#define X(name, condition)                                                       \
  void name##_forward(View y, View a, View b) {                                  \
    compare([]<class T>(T a, T b) { return condition ? T(1) : T(0); }, y, a, b); \
  }
RT_COMPARE_OPS(X)
#undef X

RT_ISA_END
