#include "kernels/conv2d.h"

#include "kernels/cpu/conv2d.h"
#include "kernels/cpu/isa.h"

RT_ISA_BEGIN

namespace {

// Whether Winograd's algorithm applies and pays: with few channels the transforms cost more than they save, and of a tile that
// reaches beyond the image the part outside is wasted.
bool use_winograd(const ConvSizes& z, const Window& p, DType dtype) {
  const bool applies = z.r == 3 && z.s == 3 && p.stride_h == 1 && p.stride_w == 1 && p.dilation_h == 1 && p.dilation_w == 1 &&
                       p.pad_h <= 2 && p.pad_w <= 2 && z.groups == 1 && dtype != DType::f64;
  const int64_t covered = (z.ho + 3) / 4 * ((z.wo + 3) / 4) * 16;
  return applies && !exact_convolutions() && z.c >= 16 && z.k >= 16 && 2 * z.ho * z.wo >= covered;
}

}  // namespace

void conv2d_forward(View y, View x, View w, View b, Window p) {
  const auto f = use_winograd({y, x, w}, p, y.dtype) ? winograd_forward : direct_forward;
  f(y, x, w, b, p);
}

void conv2d_backward_data(View dx, View dy, View w, Window p) {
  const auto f = use_winograd({dy, dx, w}, p, dx.dtype) ? winograd_backward_data : direct_backward_data;
  f(dx, dy, w, p);
}

void conv2d_backward_weights(View dw, View dy, View x, Window p) {
  const auto f = use_winograd({dy, x, dw}, p, dw.dtype) ? winograd_backward_weights : direct_backward_weights;
  f(dw, dy, x, p);
}

RT_ISA_END
