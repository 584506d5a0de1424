#include "kernels/conv2d.h"

#include "kernels/binary.h"
#include "kernels/cuda/conv/conv_operands.cuh"
#include "kernels/cuda/conv/cudnn_conv.h"

// Uses cuDNN if possible, else one matrix product per group, in 16 bits or TF32 by tensor cores, whose operands are
// read in place: patches are never written to memory.
namespace ringtape::cuda {
namespace {

template <class T, class A, class W, class Out>
void multiply(Device device, const A& a, const W& w, const Out& out, const Product& p) {
  if constexpr (kHasMma<T>) {
    if constexpr (HasTaps<A>)
      if (a.steps_of_a_tap() && gemm_mma<T>(device, by_tap(a), by_tap(w), out, p)) return;
    if (gemm_mma<T>(device, a, w, out, p)) return;
  }
  gemm<compute_t<T>>(device, a, w, out, p);
}

}  // namespace

void conv2d_forward(View y, View x, View w, View b, Window window) {
  if (y.size() == 0) return;
  if (cudnn_conv(ConvPass::forward, x, w, y, window)) return b.data ? add_forward(y, y, b) : void();
  const ConvSizes z(y, x, w, window);
  dispatch_float(y.dtype, [&]<class T>() {
    multiply<T>(y.device, Patches<T, false>{x.as<T>(), z}, Weights<T>{w.as<T>(), z},
                ImageResult<T>{y.as<T>(), b.as<T>(), z.k, z.k_group},
                {z.groups(), z.places(), z.k_group, z.taps() * z.c_group});
  });
}

void conv2d_backward_data(View dx, View dy, View w, Window window) {
  if (dx.size() == 0 || cudnn_conv(ConvPass::backward_data, dx, w, dy, window)) return;
  const ConvSizes z(dy, dx, w, window);
  dispatch_float(dx.dtype, [&]<class T>() {
    multiply<T>(dx.device, BackwardPatches<T>{dy.as<T>(), z}, TransposedWeights<T>{w.as<T>(), z},
                DataResult<T>{{dx.as<T>(), nullptr, z.c, z.c_group}, z}, Phases::sizes(z));
  });
}

void conv2d_add_backward_data(View dx, View dy, View w, Window window) {
  if (dx.size() == 0 || cudnn_conv(ConvPass::add_backward_data, dx, w, dy, window)) return;
  const Tensor own(dx.shape(), dx.dtype, dx.device);
  conv2d_backward_data(own, dy, w, window);
  add_forward(dx, dx, own);
}

void conv2d_backward_weights(View dw, View dy, View x, Window window) {
  if (dw.size() == 0 || cudnn_conv(ConvPass::backward_weights, x, dw, dy, window)) return;
  const ConvSizes z(dy, x, dw, window);
  dispatch_float(dw.dtype, [&]<class T>() {
    weight_gradient<T>(dw, z, [&](const auto& out, const Product& p) {
      multiply<T>(dw.device, OutputGradient<T>{dy.as<T>(), z}, Patches<T, true>{x.as<T>(), z}, out, p);
      return true;
    });
  });
}

}  // namespace ringtape::cuda
