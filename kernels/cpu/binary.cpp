#include "kernels/binary.h"

#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/vector/math.h"

RT_ISA_BEGIN

namespace {
using M = Math;
}

#define RT_GRADIENT(expr) []<class T>([[maybe_unused]] T a, [[maybe_unused]] T b, [[maybe_unused]] T g) { return expr; }
#define X(name, y_expr, da_expr, db_expr, ...)                                                          \
  void name##_forward(View y, View a, View b) {                                                         \
    map([]<class T>(T a, T b) { return y_expr; }, y, a, b);                                             \
  }                                                                                                     \
  void name##_backward_a(View da, View a, View b, View dy) { map(RT_GRADIENT(da_expr), da, a, b, dy); } \
  void name##_backward_b(View db, View a, View b, View dy) { map(RT_GRADIENT(db_expr), db, a, b, dy); }
RT_BINARY_OPS(X)
#undef X

#define X(name, expr)                                                    \
  void name##_whole(View y, View a, View b) {                            \
    map_as<int64_t>([](int64_t a, int64_t b) { return expr; }, y, a, b); \
  }
RT_WHOLE_OPS(X)
#undef X

RT_ISA_END
