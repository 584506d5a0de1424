#pragma once
#include "kernels/kernel.h"
#include "kernels/window.h"

// Pooling of images x (N, H, W, C) over windows of r x s -> y (N, Ho, Wo, C), Ho and Wo from Window. Contiguous, of one
// floating dtype. A window may lie entirely in the padding if its dilation is large and the image is small.
namespace ringtape {

inline constexpr int32_t kNoPlace = -1;
// The largest element of x in each window: the first one of equals in row-major order; NaN beats all numbers. index
// (i32, y's shape): its position in the image, h W + w. A window entirely outside x gives -inf and kNoPlace.
RT_KERNEL(max_pool2d_forward, void(View y, View index, View x, int64_t r, int64_t s, Window window));
// dx = the sum of dy over the windows whose largest element x was.
RT_KERNEL(max_pool2d_backward, void(View dx, View dy, View index, int64_t r, int64_t s, Window window));

// The mean over each window, where padding counts as zeros, as with PyTorch's count_include_pad.
RT_KERNEL(avg_pool2d_forward, void(View y, View x, int64_t r, int64_t s, Window window));
// dx = the sum of dy / (r s) over the windows that contain x.
RT_KERNEL(avg_pool2d_backward, void(View dx, View dy, int64_t r, int64_t s, Window window));

// The geometry of a pooling, for kernels that walk over outputs or inputs.
struct PoolShape {
  int64_t h, w, rows, columns, channels, r, s;
  Window window;

  PoolShape(const View& y, const View& x, int64_t kernel_r, int64_t kernel_s, const Window& over)
      : h(x.dims[1]), w(x.dims[2]), rows(y.dims[1]), columns(y.dims[2]), channels(x.dims[3]), r(kernel_r), s(kernel_s),
        window(over) {}

  // Calls f(h, w) for the positions of window (i, j) inside the image.
  template <class F> RT_HD void for_each_place(int64_t i, int64_t j, const F& f) const {
    for (int64_t a = 0; a < r; ++a)
      for (int64_t b = 0; b < s; ++b) {
        const int64_t y = i * window.stride_h - window.pad_h + a * window.dilation_h;
        const int64_t x = j * window.stride_w - window.pad_w + b * window.dilation_w;
        if (y >= 0 && y < h && x >= 0 && x < w) f(y, x);
      }
  }
  // Calls f(i, j) for the windows that contain position (y, x).
  template <class F> RT_HD void for_each_window(int64_t y, int64_t x, const F& f) const {
    for (int64_t a = 0; a < r; ++a)
      for (int64_t b = 0; b < s; ++b) {
        const int64_t down = y + window.pad_h - a * window.dilation_h,
                      across = x + window.pad_w - b * window.dilation_w;
        if (down < 0 || across < 0 || down % window.stride_h != 0 || across % window.stride_w != 0) continue;
        const int64_t i = down / window.stride_h, j = across / window.stride_w;
        if (i < rows && j < columns) f(i, j);
      }
  }
};

}  // namespace ringtape
