#include "kernels/clamp.h"

#include "kernels/cpu/elementwise.h"

RT_ISA_BEGIN

void clamp_forward(View y, View x, double low, double high) {
  map([low, high]<class T>(T v) { return v < T(low) ? T(low) : v > T(high) ? T(high) : v; }, y, x);
}

void clamp_backward(View dx, View x, View dy, double low, double high) {
  map([low, high]<class T>(T v, T g) { return v >= T(low) && v <= T(high) ? g : T(0); }, dx, x, dy);
}

RT_ISA_END
