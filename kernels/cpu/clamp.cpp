#include "kernels/clamp.h"

#include "kernels/cpu/elementwise.h"

RT_ISA_BEGIN

namespace {

// The bounds are converted to the compute type once, outside the loop.
template <class T> auto clamp_to(double low, double high) {
  return [low = T(low), high = T(high)](T v) {
    const bool outside = (v < low) | (v > high);  // false for a NaN
    const T bound = v < low ? low : high;
    return outside ? bound : v;
  };
}

template <class T> auto inside(double low, double high) {
  return [low = T(low), high = T(high)](T v, T g) { return ((v >= low) & (v <= high)) ? g : T(0); };
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
