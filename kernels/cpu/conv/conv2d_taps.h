#pragma once
#include <algorithm>
#include <cstdint>
#include <numeric>

#include "kernels/cpu/conv/conv2d.h"
#include "kernels/cpu/vector/range.h"
#include "kernels/cpu/vector/vector.h"

RT_ISA_BEGIN

namespace {

// One axis of a convolution as sums over taps. Place i is element out_first + i out_step of the output. Its tap t
// multiplies element in_first + i in_step + t tap_step of the input with element kernel_first + t kernel_step of the
// kernel.
struct Axis {
  int64_t places, out_first, out_step;
  int64_t in_first, in_step, taps, tap_step;
  int64_t kernel_first, kernel_step;
  int64_t pad() const { return -in_first; }  // forward
};

inline Axis forward_axis(int64_t places, int64_t kernel, int64_t stride, int64_t pad, int64_t dilation) {
  return {.places = places,
          .out_first = 0,
          .out_step = 1,
          .in_first = -pad,
          .in_step = stride,
          .taps = kernel,
          .tap_step = dilation,
          .kernel_first = 0,
          .kernel_step = 1};
}

struct Axes {
  Axis rows, cols;
};
inline Axes forward_axes(const ConvSizes& z, const Window& p) {
  return {forward_axis(z.ho, z.r, p.stride_h, p.pad_h, p.dilation_h),
          forward_axis(z.wo, z.s, p.stride_w, p.pad_w, p.dilation_w)};
}

// Elements phase, phase + stride, ... of dx. Elements r of the kernel contribute if stride divides phase + pad - r
// dilation; the quotient gives the element of dy. Taps count downwards in r, which is upwards in dy.
inline Axis backward_axis(int64_t size, int64_t kernel, int64_t stride, int64_t pad, int64_t dilation, int64_t phase) {
  const int64_t common = std::gcd(stride, dilation), period = stride / common;
  const auto distance = [&](int64_t r) { return phase + pad - r * dilation; };
  int64_t first = 0;
  while (first < std::min(period, kernel) && distance(first) % stride) ++first;
  const int64_t taps = first < std::min(period, kernel) ? (kernel - 1 - first) / period + 1 : 0,
                last = first + (taps - 1) * period;
  return {.places = ceil_div(size - phase, stride),
          .out_first = phase,
          .out_step = stride,
          .in_first = taps ? distance(last) / stride : 0,
          .in_step = 1,
          .taps = taps,
          .tap_step = dilation / common,
          .kernel_first = last,
          .kernel_step = -period};
}

// An output position: column j of row i of image n.
struct Place {
  int64_t n, i, j;
  Place(int64_t pixel, int64_t rows, int64_t cols)
      : n(pixel / (rows * cols)), i(pixel / cols % rows), j(pixel % cols) {}
  RT_INLINE void advance(int64_t rows, int64_t cols) {
    if (++j < cols) return;
    j = 0;
    if (++i < rows) return;
    i = 0, ++n;
  }
};

// to[0, count) = from, converted.
template <class T> RT_INLINE void copy_converted(const T* from, int64_t count, compute_t<T>* to) {
  constexpr int lanes = kLanes<compute_t<T>>;
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) store(to + i, load_converted(from + i, lanes));
  if (i < count) store_partial(to + i, load_converted(from + i, count - i), count - i);
}
RT_INLINE void copy_converted(const bf16* from, int64_t count, bf16* to) {
#if RT_ISA_LEVEL == 3
  for (; count > 0; count -= 32, from += 32, to += 32) {
    const __mmask32 part = count < 32 ? (1u << count) - 1 : ~0u;
    _mm512_mask_storeu_epi16(to, part, _mm512_maskz_loadu_epi16(part, from));
  }
#else
  std::copy_n(from, count, to);
#endif
}
template <class C> RT_INLINE void fill_zero(C* to, int64_t count) {
  for (int64_t i = 0; i < count; ++i) to[i] = C(0.f);
}

// The inputs of each output position as rows of a matrix (n rows.places cols.places, taps x channels), of which only
// blocks are ever written to memory (im2col by blocks), as C.
template <class T, class C> class Patches {
 public:
  // x: the first of the group's `channels`, of `c` in total.
  Patches(const T* x, int64_t h, int64_t w, int64_t c, int64_t channels, const Axis& rows, const Axis& cols)
      : x_(x), h_(h), w_(w), c_(c), rows_(rows), cols_(cols), joined_(channels == c && cols.tap_step == 1),
        run_taps_(joined_ ? cols.taps : 1), run_size_(run_taps_ * channels), row_runs_(joined_ ? 1 : cols.taps) {}

  int64_t depth() const { return rows_.taps * row_runs_ * run_size_; }
  // Whether the matrix is x itself in memory.
  bool in_place() const {
    const auto same = [](const Axis& a, int64_t size) {
      return a.taps == 1 && a.in_first == 0 && a.in_step == 1 && a.places == size;
    };
    return joined_ && same(rows_, h_) && same(cols_, w_);
  }

  // Writes rows `pixels` and columns `depths` to (pixels, stride).
  void write(Range pixels, Range depths, C* to, int64_t stride) const {
    const Place first(pixels.begin, rows_.places, cols_.places);
    for (int64_t q = depths.begin / run_size_, at = q * run_size_; at < depths.end; ++q, at += run_size_) {
      const Range part{std::max<int64_t>(depths.begin - at, 0), std::min(depths.end - at, run_size_)};
      write_run(q / row_runs_, q % row_runs_, part, first, pixels.size(), to + (at - depths.begin), stride);
    }
  }

 private:
  // A row consists of runs, whose part inside x is contiguous: all taps of a kernel row, or one tap. Writes elements
  // `part` of one run for `count` places, one row of the output after the other.
  void write_run(int64_t tap_row, int64_t tap_col, Range part, Place at, int64_t count, C* to, int64_t stride) const {
    while (count > 0) {
      const int64_t row = rows_.in_first + at.i * rows_.in_step + tap_row * rows_.tap_step;
      const int64_t col = cols_.in_first + at.j * cols_.in_step + tap_col * cols_.tap_step;
      const int64_t places = std::min(count, cols_.places - at.j);
      if (row >= 0 && row < h_) write_places((at.n * h_ + row) * w_, col, part, places, to, stride);
      else
        for (int64_t p = 0; p < places; ++p) fill_zero(to + p * stride + part.begin, part.size());
      to += places * stride, count -= places;
      at.j += places - 1, at.advance(rows_.places, cols_.places);
    }
  }

  // The same for places whose runs are in the row of x that begins at pixel `first`, from column `col` on.
  void write_places(int64_t first, int64_t col, Range part, int64_t places, C* to, int64_t stride) const {
    const int64_t step = cols_.in_step, size = part.size();
    const T* from = x_ + (first + col) * c_ + part.begin;
    to += part.begin;
    for (int64_t p = 0; p < places; ++p, col += step, from += step * c_, to += stride) {
      if (col >= 0 && col + run_taps_ <= w_) [[likely]] {
        copy_converted(from, size, to);
      } else {
        const int64_t channels = run_size_ / run_taps_;
        const int64_t low = std::clamp(-col * channels, part.begin, part.end) - part.begin;
        const int64_t high = std::clamp((w_ - col) * channels - part.begin, low, size);
        fill_zero(to, low);
        if (high > low) copy_converted(from + low, high - low, to + low);
        fill_zero(to + high, size - high);
      }
    }
  }

  const T* x_;
  int64_t h_, w_, c_;
  Axis rows_, cols_;
  bool joined_;
  int64_t run_taps_, run_size_, row_runs_;
};

}  // namespace

RT_ISA_END
