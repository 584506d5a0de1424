#include "kernels/clamp.h"

#include "kernels/cuda/elementwise.cuh"

namespace ringtape::cuda {
namespace {

struct Clamp {
  double low, high;
  template <class T> __device__ T operator()(T x) const {  // NaN passes
    return x < T(low) ? T(low) : x > T(high) ? T(high) : x;
  }
};
struct Inside {
  double low, high;
  template <class T> __device__ T operator()(T x, T g) const { return x >= T(low) && x <= T(high) ? g : T(0); }
};

}  // namespace

void clamp_forward(View y, View x, double low, double high) { map(Clamp{low, high}, y, x); }
void clamp_backward(View dx, View x, View dy, double low, double high) { map(Inside{low, high}, dx, x, dy); }

}  // namespace ringtape::cuda
