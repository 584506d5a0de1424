// For GPUs.
#include "softsign.h"

#include <ringtape/kernels/cuda/elementwise.cuh>

namespace ringtape::cuda {
namespace {

struct Forward {
  template <class T> __device__ T operator()(T x) const { return x / (1 + (x < 0 ? -x : x)); }
};
struct Backward {
  template <class T> __device__ T operator()(T x, T dy) const {
    const T d = 1 + (x < 0 ? -x : x);
    return dy / (d * d);
  }
};

}  // namespace

void softsign_forward(View y, View x) { map(Forward{}, y, x); }
void softsign_backward(View dx, View x, View dy) { map(Backward{}, dx, x, dy); }

}  // namespace ringtape::cuda
