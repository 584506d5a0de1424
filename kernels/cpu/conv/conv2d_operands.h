#pragma once
#include <vector>

#include "kernels/cpu/conv/conv2d.h"
#include "kernels/cpu/conv/conv2d_taps.h"

RT_ISA_BEGIN

namespace {

// One group of a convolution, forward or backward data: out (n, out_h, out_w, columns of out_c) from in (n, h, w, depth
// of c). Weight (r, s, d, j) for input channel d and output channel j is w[(r kernel_w + s) tap + d depth_stride + j
// column_stride].
template <class T> struct DirectOperands {
  const T* in;
  int64_t n, h, w, c, depth;
  T* out;
  int64_t out_h, out_w, out_c, columns;
  const T* weights;
  int64_t kernel_w, tap, depth_stride, column_stride;
  const T* bias;
};

template <class T>
DirectOperands<T> forward_operands(const View& y, const View& x, const View& w, const View& b, int64_t group) {
  const ConvSizes z(y, x, w);
  return {.in = x.as<T>() + group * z.cg,
          .n = z.n,
          .h = z.h,
          .w = z.w,
          .c = z.c,
          .depth = z.cg,
          .out = y.as<T>() + group * z.kg,
          .out_h = z.ho,
          .out_w = z.wo,
          .out_c = z.k,
          .columns = z.kg,
          .weights = w.as<T>() + group * z.kg * z.taps() * z.cg,
          .kernel_w = z.s,
          .tap = z.cg,
          .depth_stride = 1,
          .column_stride = z.taps() * z.cg,
          .bias = b.data ? b.as<T>() + group * z.kg : nullptr};
}

template <class T> DirectOperands<T> backward_operands(const View& dx, const View& dy, const View& w, int64_t group) {
  const ConvSizes z(dy, dx, w);
  return {.in = dy.as<T>() + group * z.kg,
          .n = z.n,
          .h = z.ho,
          .w = z.wo,
          .c = z.k,
          .depth = z.kg,
          .out = dx.as<T>() + group * z.cg,
          .out_h = z.h,
          .out_w = z.w,
          .out_c = z.c,
          .columns = z.cg,
          .weights = w.as<T>() + group * z.kg * z.taps() * z.cg,
          .kernel_w = z.s,
          .tap = z.cg,
          .depth_stride = z.taps() * z.cg,
          .column_stride = 1,
          .bias = nullptr};
}

// The phases of the strides of backward data: each is a convolution for some of the rows and columns of dx.
inline std::vector<Axes> backward_phases(const ConvSizes& z, const Window& p) {
  std::vector<Axes> phases;
  for (int64_t i = 0; i < std::min(p.stride_h, z.h); ++i)
    for (int64_t j = 0; j < std::min(p.stride_w, z.w); ++j)
      phases.push_back({backward_axis(z.h, z.r, p.stride_h, p.pad_h, p.dilation_h, i),
                        backward_axis(z.w, z.s, p.stride_w, p.pad_w, p.dilation_w, j)});
  return phases;
}

}  // namespace

RT_ISA_END
