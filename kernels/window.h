#pragma once
#include "core/view.h"

namespace ringtape {

// The steps of an R x S kernel over the rows and columns of an image.
struct Window {
  int64_t stride_h = 1, stride_w = 1;
  int64_t pad_h = 0, pad_w = 0;  // on both sides
  int64_t dilation_h = 1, dilation_w = 1;

  // Number of positions along an axis of `size` elements: floor((size + 2 pad - dilation (kernel - 1) - 1) / stride) +
  // 1, or 0 if the kernel does not fit.
  static constexpr int64_t places(int64_t size, int64_t kernel, int64_t stride, int64_t pad, int64_t dilation) {
    const int64_t room = size + 2 * pad - dilation * (kernel - 1) - 1;
    return room < 0 ? 0 : room / stride + 1;
  }
  constexpr int64_t rows(int64_t h, int64_t r) const { return places(h, r, stride_h, pad_h, dilation_h); }
  constexpr int64_t columns(int64_t w, int64_t s) const { return places(w, s, stride_w, pad_w, dilation_w); }
};

// The same values for rows and columns.
constexpr Window square_window(int64_t stride, int64_t pad = 0, int64_t dilation = 1) {
  return {stride, stride, pad, pad, dilation, dilation};
}

}  // namespace ringtape
