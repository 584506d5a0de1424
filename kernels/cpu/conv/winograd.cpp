#include "kernels/cpu/conv/winograd.h"

#include "kernels/cpu/conv/conv2d.h"
#include "kernels/cpu/vector/isa.h"

RT_ISA_BEGIN

namespace {

// Not for f64.
template <class F> void dispatch_winograd(DType dtype, F&& f) {
  dispatch_float(dtype, [&]<class T>() {
    if constexpr (!std::is_same_v<T, double>) f.template operator()<T>();
  });
}

}  // namespace

void winograd_forward(View y, View x, View w, View b, Window p, PixelNorm of_x) {
  dispatch_winograd(y.dtype, [&]<class T>() {
    Winograd<T, F32Operand, F43, F43>(winograd_forward_operands<T>(y, x, w, b, p, of_x)).run(y.device);
  });
}

void winograd_backward_data(View dx, View dy, View w, Window p) {
  dispatch_winograd(dx.dtype, [&]<class T>() {
    Winograd<T, F32Operand, F43, F43>(winograd_backward_operands<T>(dx, dy, w, p)).run(dx.device);
  });
}

RT_ISA_END
