// For CPUs, compiled once per instruction set.
#include "softsign.h"

#include <ringtape/kernels/cpu/elementwise.h>

#include <cmath>

RT_ISA_BEGIN

namespace {

template <class T> T forward(T x) { return x / (1 + std::abs(x)); }
template <class T> T backward(T x, T dy) { return dy / ((1 + std::abs(x)) * (1 + std::abs(x))); }

}  // namespace

void softsign_forward(View y, View x) {
  if (y.dtype == DType::f64) map_as<double>([](double v) { return forward(v); }, y, x);
  else map_as<float>([](float v) { return forward(v); }, y, x);
}

void softsign_backward(View dx, View x, View dy) {
  if (dx.dtype == DType::f64) map_as<double>([](double v, double g) { return backward(v, g); }, dx, x, dy);
  else map_as<float>([](float v, float g) { return backward(v, g); }, dx, x, dy);
}

RT_ISA_END
