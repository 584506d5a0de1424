// Convolution with one input and one output channel per group: one vector of channels at a time, without matrix
// products.
#include <algorithm>

#include "kernels/cpu/conv/conv2d.h"
#include "kernels/cpu/conv/conv2d_taps.h"
#include "kernels/cpu/vector/isa.h"
#include "kernels/cpu/vector/scratch.h"

RT_ISA_BEGIN

namespace {

// Whether tap t of output position i has an input element along an axis; `at` is its index.
RT_INLINE bool element(const Axis& a, int64_t i, int64_t t, int64_t size, int64_t& at) {
  at = a.in_first + i * a.in_step + t * a.tap_step;
  return at >= 0 && at < size;
}

// Transposes w (C, taps) to (taps, stride), with zeros after the last channel.
template <class T>
void transpose_weights(const T* w, int64_t channels, int64_t taps, int64_t stride, compute_t<T>* to) {
  for (int64_t t = 0; t < taps; ++t)
    for (int64_t c = 0; c < stride; ++c) to[t * stride + c] = c < channels ? compute_t<T>(w[c * taps + t]) : 0;
}

// One row of the output; weights (taps, stride).
template <class T>
void run_row(const T* in, int64_t h, int64_t w, T* out, int64_t out_step, int64_t channels, const compute_t<T>* weights,
             int64_t stride, int64_t kernel_w, const T* bias, int64_t i, const Axis& rows, const Axis& cols) {
  using C = compute_t<T>;
  for (int64_t j = 0; j < cols.places; ++j, out += out_step)
    for (int64_t c = 0; c < channels; c += kLanes<C>) {
      Vec<C> sum = bias ? load_converted(bias + c, channels - c) : Vec<C>{};
      int64_t row, col;
      for (int64_t t = 0; t < rows.taps; ++t)
        for (int64_t u = 0; u < cols.taps; ++u)
          if (element(rows, i, t, h, row) && element(cols, j, u, w, col)) {
            const int64_t tap =
                (rows.kernel_first + t * rows.kernel_step) * kernel_w + cols.kernel_first + u * cols.kernel_step;
            sum += load_converted(in + (row * w + col) * channels + c, channels - c) * load(weights + tap * stride + c);
          }
      store_converted(out + c, sum, channels - c);
    }
}

}  // namespace

void depthwise_forward(View y, View x, View w, View b, Window p) {
  const ConvSizes z(y, x, w);
  const Axes axes = forward_axes(z, p);
  dispatch_float(y.dtype, [&]<class T>() {
    using C = compute_t<T>;
    const int64_t stride = round_up(z.c, kLanes<C>);
    const Scratch<C> weights(stride * z.taps(), y.device);
    transpose_weights(w.as<T>(), z.c, z.taps(), stride, weights.data());
    parallel_for(z.n * z.ho, 1, [&](int64_t begin, int64_t end) {
      for (int64_t q = begin; q < end; ++q) {
        const T* image = x.as<T>() + q / z.ho * z.h * z.w * z.c;
        run_row<T>(image, z.h, z.w, y.as<T>() + q * z.wo * z.c, z.c, z.c, weights.data(), stride, z.s, b.as<T>(),
                   q % z.ho, axes.rows, axes.cols);
      }
    });
  });
}

void depthwise_backward_data(View dx, View dy, View w, Window p) {
  const ConvSizes z(dy, dx, w);
  dispatch_float(dx.dtype, [&]<class T>() {
    using C = compute_t<T>;
    const int64_t stride = round_up(z.c, kLanes<C>);
    const Scratch<C> weights(stride * z.taps(), dx.device);
    transpose_weights(w.as<T>(), z.c, z.taps(), stride, weights.data());
    parallel_for(z.n * z.h, 1, [&](int64_t begin, int64_t end) {
      for (int64_t q = begin; q < end; ++q) {
        const int64_t row = q % z.h;
        const T* image = dy.as<T>() + q / z.h * z.ho * z.wo * z.c;
        const Axis rows = backward_axis(z.h, z.r, p.stride_h, p.pad_h, p.dilation_h, row % p.stride_h);
        for (int64_t phase = 0; phase < std::min(p.stride_w, z.w); ++phase) {
          const Axis cols = backward_axis(z.w, z.s, p.stride_w, p.pad_w, p.dilation_w, phase);
          run_row<T>(image, z.ho, z.wo, dx.as<T>() + (q * z.w + phase) * z.c, p.stride_w * z.c, z.c, weights.data(),
                     stride, z.s, nullptr, row / p.stride_h, rows, cols);
        }
      }
    });
  });
}

// For each tap and vector of channels: sums within a row, then over all rows of all images.
void depthwise_backward_weights(View dw, View dy, View x, Window p) {
  const ConvSizes z(dy, x, dw);
  const Axes axes = forward_axes(z, p);
  dispatch_float(dw.dtype, [&]<class T>() {
    using C = compute_t<T>;
    parallel_for(ceil_div(z.c, kLanes<C>) * z.taps(), 1, [&](int64_t begin, int64_t end) {
      for (int64_t q = begin; q < end; ++q) {
        const int64_t tap = q % z.taps(), c = q / z.taps() * kLanes<C>, count = std::min<int64_t>(z.c - c, kLanes<C>);
        Vec<C> total{};
        int64_t row, col;
        for (int64_t place = 0; place < z.n * z.ho; ++place) {
          if (!element(axes.rows, place % z.ho, tap / z.s, z.h, row)) continue;
          Vec<C> sum{};
          for (int64_t j = 0; j < z.wo; ++j)
            if (element(axes.cols, j, tap % z.s, z.w, col))
              sum += load_converted(dy.as<T>() + (place * z.wo + j) * z.c + c, count) *
                     load_converted(x.as<T>() + ((place / z.ho * z.h + row) * z.w + col) * z.c + c, count);
          total += sum;
        }
        for (int64_t l = 0; l < count; ++l) dw.as<T>()[(c + l) * z.taps() + tap] = T(total[l]);
      }
    });
  });
}

RT_ISA_END
