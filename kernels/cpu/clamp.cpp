#include "kernels/clamp.h"

#include "kernels/cpu/elementwise.h"

RT_ISA_BEGIN

namespace {

// Bounds in the compute type, and one choice after the other: a conversion or a nested choice in the loop keeps it from
// vectorising.
template <class T>
auto clamp_to(double low, double high) {
  return [low = T(low), high = T(high)](T v) {
    const T raised = v < low ? low : v;
    return raised > high ? high : raised;
  };
}

template <class T>
auto inside(double low, double high) {
  return [low = T(low), high = T(high)](T v, T g) { return (v >= low) & (v <= high) ? g : T(0); };
}

}  // namespace

void clamp_forward(View y, View x, double low, double high) {
  if (y.dtype == DType::f64) map_as<double>(clamp_to<double>(low, high), y, x);
  else map_as<float>(clamp_to<float>(low, high), y, x);
}

void clamp_backward(View dx, View x, View dy, double low, double high) {
  if (dx.dtype == DType::f64) map_as<double>(inside<double>(low, high), dx, x, dy);
  else map_as<float>(inside<float>(low, high), dx, x, dy);
}

RT_ISA_END
