// Winograd convolution of bf16 whose products have bf16 operands. The rounding of V and U to bf16 is most of the error,
// and F(2x4) has less of it than F(4x4): forward, where the error of each layer goes through all the following ones.
#include "kernels/cpu/conv/conv2d.h"
#include "kernels/cpu/conv/winograd.h"
#include "kernels/cpu/conv/winograd_bf16_operand.h"
#include "kernels/cpu/vector/isa.h"

RT_ISA_BEGIN

void RT_UNIT::winograd_bf16_forward(View y, View x, View w, View b, Window p, PixelNorm of_x) {
  Winograd<bf16, Bf16Operand, F23, F43>(winograd_forward_operands<bf16>(y, x, w, b, p, of_x)).run(y.device);
}

void RT_UNIT::winograd_bf16_backward_data(View dx, View dy, View w, Window p) {
  Winograd<bf16, Bf16Operand, F43, F43>(winograd_backward_operands<bf16>(dx, dy, w, p)).run(dx.device);
}

RT_ISA_END
