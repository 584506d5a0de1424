#include "kernels/where.h"

#include "kernels/cpu/elementwise.h"

RT_ISA_BEGIN

void where_forward(View y, View cond, View a, View b) {
  map_any_dtype([]<class T>(T c, T v, T w) { return c != 0 ? v : w; }, y, cond, a, b);
}

RT_ISA_END
