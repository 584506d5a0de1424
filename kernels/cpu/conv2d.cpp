#include "kernels/conv2d.h"

#include "kernels/cpu/conv2d.h"
#include "kernels/cpu/isa.h"

RT_ISA_BEGIN

void conv2d_forward(View y, View x, View w, View b, Window window) { direct_forward(y, x, w, b, window); }
void conv2d_backward_data(View dx, View dy, View w, Window window) { direct_backward_data(dx, dy, w, window); }
void conv2d_backward_weights(View dw, View dy, View x, Window window) { direct_backward_weights(dw, dy, x, window); }

RT_ISA_END
