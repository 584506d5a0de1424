#pragma once
#include <algorithm>
#include <numeric>

#include "core/tensor.h"
#include "kernels/cuda/gemm/matrix.cuh"
#include "kernels/window.h"

// The operands and results of convolutions as matrix products, one per group, read and written in place: patches are
// never written to memory.
namespace ringtape::cuda {
namespace {

struct ConvSizes {
  // y is (n, rows, columns, k); *_group: channels of one group.
  int n, h, w, c, rows, columns, k, r, s, c_group, k_group;
  int stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w;
  int same_h, same_w;    // the greatest common divisors of strides and dilations
  int kinds_h, kinds_w;  // of positions modulo the strides

  ConvSizes(const View& y, const View& x, const View& weights, const Window& p)
      : n(int(x.dims[0])), h(int(x.dims[1])), w(int(x.dims[2])), c(int(x.dims[3])), rows(int(y.dims[1])),
        columns(int(y.dims[2])), k(int(y.dims[3])), r(int(weights.dims[1])), s(int(weights.dims[2])),
        c_group(int(weights.dims[3])), k_group(int(k / (c / c_group))), stride_h(int(p.stride_h)),
        stride_w(int(p.stride_w)), pad_h(int(p.pad_h)), pad_w(int(p.pad_w)), dilation_h(int(p.dilation_h)),
        dilation_w(int(p.dilation_w)), same_h(std::gcd(stride_h, dilation_h)), same_w(std::gcd(stride_w, dilation_w)),
        kinds_h(std::min(stride_h, h)), kinds_w(std::min(stride_w, w)) {
    RT_CHECK_AS(ShapeError,
                x.dims[0] * std::max(x.dims[1], y.dims[1]) < INT32_MAX && x.dims[2] < INT32_MAX &&
                    taps() * std::max(c, k) < INT32_MAX,
                "convolution of ", x.shape(), " by ", weights.shape(),
                ": too large for one call on a GPU; divide the batch");
  }
  int64_t groups() const { return c / c_group; }
  int64_t taps() const { return int64_t(r) * s; }
  // Whether the steps of tensor cores can be of one tap each, of this many channels of one group.
  template <class T> bool steps_of_a_tap(int channels) const {
    const int64_t line = std::max(int64_t(w) * c, int64_t(columns) * k), down = int64_t(r) * dilation_h,
                  across = int64_t(s) * dilation_w * std::max(c, k);
    return channels % kMmaDepth<T> == 0 && taps() <= kMaxTaps && taps() * c * k <= INT32_MAX && line <= INT32_MAX &&
           down <= INT32_MAX && down * line + across <= INT32_MAX;  // a Tap's offset is an int
  }
  int64_t places() const { return int64_t(n) * rows * columns; }
};

// The operands. Packs of 16 bytes are of channels of one tap; an operand's Walk goes along the depth.
template <class T> bool packed(const T* data, int64_t channels, int64_t of_group) {
  constexpr int kPack = kPackOf<T>;
  return channels % kPack == 0 && of_group % kPack == 0 && aligned_width(kPack, data) == kPack;
}

// `inner` += n, of `size`; what is over goes into `outer`, of `of`; returns what is over there.
__device__ inline int carry(int& inner, int n, int size, int& outer, int of) {
  int over = 0;
  for (inner += n; inner >= size; inner -= size)
    if (++outer == of) outer = 0, ++over;
  return over;
}

// Outer: a position of y; depth: (r, s, c) of its kernel, over x. `swapped` exchanges the two.
template <class T, bool swapped> struct Patches {
  const T* data;
  ConvSizes z;
  struct Walk {
    const T* image;  // its first channel of the group
    int row, column, r, s, c;
    __device__ const T* get(const Patches& x) const {
      const ConvSizes& z = x.z;
      const int h = row * z.stride_h + r * z.dilation_h - z.pad_h, v = column * z.stride_w + s * z.dilation_w - z.pad_w;
      const bool inside = h >= 0 && h < z.h && v >= 0 && v < z.w;
      return inside ? image + (int64_t{h} * z.w + v) * z.c + c : nullptr;
    }
    __device__ void advance(const Patches& x, int n) {
      const ConvSizes& z = x.z;
      if constexpr (swapped) image += int64_t{carry(column, n, z.columns, row, z.rows)} * z.h * z.w * z.c;
      else r += carry(c, n, z.c_group, s, z.s);
    }
  };
  bool packed() const { return cuda::packed(data, z.c, z.c_group); }
  __host__ __device__ int channels() const { return z.c_group; }
  static constexpr bool outer_first() { return swapped; }
  bool steps_of_a_tap() const { return z.template steps_of_a_tap<T>(z.c_group); }
  __device__ Tap tap() const requires(!swapped) { return {}; }
  __device__ void advance(Tap& t, int n) const {
    t.c += n, t.offset += n;
    if (t.c < z.c_group) return;
    t.c = 0, t.bit <<= 1, t.offset += z.dilation_w * z.c - z.c_group;
    if (++t.column == z.s) t.column = 0, t.offset += (z.dilation_h * z.w - z.s * z.dilation_w) * z.c;
  }
  __device__ Spot<T> spot(int64_t group, int64_t i, int c) const {
    const int row = int(i / z.columns), top = row % z.rows * z.stride_h - z.pad_h,
              left = int(i - int64_t{row} * z.columns) * z.stride_w - z.pad_w;
    uint32_t taps = 0;
    for (int r = 0, bit = 0; r < z.r; ++r)
      for (int s = 0; s < z.s; ++s, ++bit) {
        const int a = top + r * z.dilation_h, b = left + s * z.dilation_w;
        if (a >= 0 && a < z.h && b >= 0 && b < z.w) taps |= 1u << bit;
      }
    return {data + ((int64_t(row / z.rows) * z.h + top) * z.w + left) * z.c + group * z.c_group + c, taps};
  }
  __device__ Walk walk(int64_t group, int64_t i, int64_t p) const {
    const int64_t place = swapped ? p : i;
    const int tap = int(swapped ? i : p), row = int(place / z.columns);
    return {data + int64_t(row / z.rows) * z.h * z.w * z.c + group * z.c_group,
            row % z.rows,
            int(place % z.columns),
            tap / z.c_group / z.s,
            tap / z.c_group % z.s,
            tap % z.c_group};
  }
  __device__ T at(int64_t group, int64_t i, int64_t p) const {
    const T* const from = walk(group, i, p).get(*this);
    return from ? *from : T(0);
  }
};

// Of the data gradient: positions of x that are alike modulo the strides get theirs by the same taps, and each kind of
// them is a product of its own. Of one axis, with positions first + stride i and taps tap + step j:
struct Phase {
  int first, places, tap, taps;
  int out;  // the position of y that the first of both meet; it grows with i, and falls with j by dilation / same
  __host__ __device__ Phase(int number, int size, int kernel, int stride, int pad, int dilation, int step)
      : first(number), places((size - first + stride - 1) / stride), tap(0), taps(0), out(0) {
    for (int r = 0; r < step && r < kernel; ++r) {
      if ((first + pad - r * dilation) % stride != 0) continue;
      tap = r, taps = (kernel - r + step - 1) / step, out = (first + pad - r * dilation) / stride;
    }
  }
};
struct Phases {  // of number b: of the group, too
  Phase h, w;
  int group;
  __host__ __device__ Phases(const ConvSizes& z, int64_t b)
      : h(int(b / z.kinds_w % z.kinds_h), z.h, z.r, z.stride_h, z.pad_h, z.dilation_h, z.stride_h / z.same_h),
        w(int(b % z.kinds_w), z.w, z.s, z.stride_w, z.pad_w, z.dilation_w, z.stride_w / z.same_w),
        group(int(b / (int64_t{z.kinds_h} * z.kinds_w))) {}
  __host__ __device__ int64_t places(const ConvSizes& z) const { return int64_t(z.n) * h.places * w.places; }
  // The position of x of number i.
  __device__ int64_t place(const ConvSizes& z, int64_t i) const {
    if (z.stride_h == 1 && z.stride_w == 1) return i;
    const int row = int(i / w.places), image = row / h.places;
    return (int64_t{image} * z.h + h.first + (row - image * h.places) * z.stride_h) * z.w + w.first +
           (i - int64_t{row} * w.places) * z.stride_w;
  }
  // With the most positions and the most taps that a kind has.
  static Product sizes(const ConvSizes& z) {
    const auto most = [](int n, int of) { return (n + of - 1) / of; };
    return {z.groups() * z.kinds_h * z.kinds_w, int64_t(z.n) * most(z.h, z.stride_h) * most(z.w, z.stride_w), z.c_group,
            int64_t{z.k_group} * most(z.r, z.stride_h / z.same_h) * most(z.s, z.stride_w / z.same_w)};
  }
};

// Outer: a position of x; depth: (r, s, k), over the positions of y that it contributed to.
template <class T> struct BackwardPatches {
  const T* data;
  ConvSizes z;
  Phases phases = Phases(z, 0);
  struct Walk {
    const T* image;
    int row, column, r, s, k, taps;  // the position of y for the first tap; numbers of taps
    __device__ const T* get(const BackwardPatches& x) const {
      const ConvSizes& z = x.z;
      const int i = row - r * (z.dilation_h / z.same_h), j = column - s * (z.dilation_w / z.same_w);
      const bool inside = i >= 0 && i < z.rows && j >= 0 && j < z.columns;
      return inside ? image + (int64_t{i} * z.columns + j) * z.k + k : nullptr;
    }
    __device__ void advance(const BackwardPatches& x, int n) { r += carry(k, n, x.z.k_group, s, taps); }
  };
  bool packed() const { return cuda::packed(data, z.k, z.k_group); }
  __host__ __device__ int channels() const { return z.k_group; }
  static constexpr bool outer_first() { return false; }
  __device__ void start(int64_t b) { phases = Phases(z, b); }
  __device__ int64_t outer_size() const { return phases.places(z); }
  __device__ int64_t depth() const { return int64_t{phases.h.taps} * phases.w.taps * z.k_group; }
  bool steps_of_a_tap() const { return z.template steps_of_a_tap<T>(z.k_group); }
  __device__ Tap tap() const { return {}; }
  __device__ void advance(Tap& t, int n) const {
    const int down = z.dilation_h / z.same_h, across = z.dilation_w / z.same_w;
    t.c += n, t.offset += n;
    if (t.c < z.k_group) return;
    t.c = 0, t.bit <<= 1, t.offset -= across * z.k + z.k_group;
    if (++t.column == phases.w.taps) t.column = 0, t.offset -= (down * z.columns - phases.w.taps * across) * z.k;
  }
  __device__ Spot<T> spot(int64_t, int64_t place, int c) const {  // even of no positions, a tile has a first row
    const int rows = phases.h.places > 0 ? phases.h.places : 1, columns = phases.w.places > 0 ? phases.w.places : 1;
    const int row = int(place / columns), i = phases.h.out + row % rows, j = phases.w.out + int(place % columns);
    uint32_t taps = 0;
    for (int r = 0, bit = 0; r < phases.h.taps; ++r)
      for (int s = 0; s < phases.w.taps; ++s, ++bit) {
        const int a = i - r * (z.dilation_h / z.same_h), b = j - s * (z.dilation_w / z.same_w);
        if (a >= 0 && a < z.rows && b >= 0 && b < z.columns) taps |= 1u << bit;
      }
    return {data + ((int64_t(row / rows) * z.rows + i) * z.columns + j) * z.k + phases.group * z.k_group + c, taps};
  }
  __device__ Walk walk(int64_t, int64_t place, int64_t p) const {  // even of no positions, a tile has a first row
    const int rows = phases.h.places > 0 ? phases.h.places : 1, columns = phases.w.places > 0 ? phases.w.places : 1;
    const int row = int(place / columns), t = int(p), taps = phases.w.taps > 0 ? phases.w.taps : 1;
    return {data + int64_t(row / rows) * z.rows * z.columns * z.k + phases.group * z.k_group,
            phases.h.out + row % rows,
            phases.w.out + int(place % columns),
            t / z.k_group / taps,
            t / z.k_group % taps,
            t % z.k_group,
            taps};
  }
  __device__ T at(int64_t b, int64_t place, int64_t p) const {
    const T* const from = walk(b, place, p).get(*this);
    return from ? *from : T(0);
  }
};

// Outer: an output channel; depth: (r, s, c).
template <class T> struct Weights {
  const T* data;
  ConvSizes z;
  using Walk = LinearWalk<T>;
  bool packed() const { return cuda::packed(data, z.c, z.c_group); }
  static constexpr bool outer_first() { return false; }
  __device__ Walk walk(int64_t group, int64_t k, int64_t tap) const {
    return {data + (group * z.k_group + k) * z.r * z.s * z.c_group + tap, 1};
  }
  __device__ T at(int64_t group, int64_t k, int64_t tap) const { return *walk(group, k, tap).from; }
};

// Outer: an input channel; depth: (r, s, k) as of BackwardPatches.
template <class T> struct TransposedWeights {
  const T* data;
  ConvSizes z;
  Phases phases = Phases(z, 0);
  struct Walk {
    const T* from;  // of the group, the first tap, channel c
    int r, s, k, taps;
    __device__ const T* get(const TransposedWeights& w) const {
      const ConvSizes& z = w.z;
      const int tap = r * (z.stride_h / z.same_h) * z.s + s * (z.stride_w / z.same_w);
      return from + (int64_t{k} * z.r * z.s + tap) * z.c_group;
    }
    __device__ void advance(const TransposedWeights& w, int n) { r += carry(k, n, w.z.k_group, s, taps); }
  };
  bool packed() const { return cuda::packed(data, z.c, z.c_group); }
  static constexpr bool outer_first() { return true; }
  __device__ void start(int64_t b) { phases = Phases(z, b); }
  __device__ Tap tap() const { return {}; }
  __device__ void advance(Tap& t, int n) const {  // all taps are inside: the bit stays
    const int filter = z.r * z.s * z.c_group, across = z.stride_w / z.same_w * z.c_group;
    t.c += n, t.offset += n * filter;
    if (t.c < z.k_group) return;
    t.c = 0, t.offset += across - z.k_group * filter;
    if (++t.column == phases.w.taps)
      t.column = 0, t.offset += z.stride_h / z.same_h * z.s * z.c_group - phases.w.taps * across;
  }
  __device__ Spot<T> spot(int64_t, int64_t c, int k) const {
    const int64_t filter = int64_t{phases.group} * z.k_group + k;
    return {data + ((filter * z.r + phases.h.tap) * z.s + phases.w.tap) * z.c_group + c, 1};
  }
  __device__ Walk walk(int64_t, int64_t c, int64_t p) const {
    const int t = int(p), taps = phases.w.taps > 0 ? phases.w.taps : 1;
    return {data + (int64_t{phases.group} * z.k_group * z.r * z.s + phases.h.tap * z.s + phases.w.tap) * z.c_group + c,
            t / z.k_group / taps, t / z.k_group % taps, t % z.k_group, taps};
  }
  __device__ T at(int64_t b, int64_t c, int64_t p) const { return *walk(b, c, p).get(*this); }
};

// Outer: an output channel; depth: a position of y.
template <class T> struct OutputGradient {
  const T* data;
  ConvSizes z;
  using Walk = LinearWalk<T>;
  bool packed() const { return cuda::packed(data, z.k, z.k_group); }
  __host__ __device__ int channels() const { return z.k_group; }
  static constexpr bool outer_first() { return true; }
  __device__ Walk walk(int64_t group, int64_t k, int64_t place) const {
    return {data + place * z.k + group * z.k_group + k, z.k};
  }
  __device__ T at(int64_t group, int64_t k, int64_t place) const { return *walk(group, k, place).from; }
};

// (positions, channels) with the channels of one group adjacent.
template <class T> struct ImageResult {
  using Element = T;
  using Sums = NoSums;
  T* y;
  const T* bias;  // (channels), or null
  int64_t channels, group_channels;
  __device__ void put(int64_t group, int64_t, int64_t place, int64_t k, compute_t<T> sum) const {
    const int64_t channel = group * group_channels + k;
    y[place * channels + channel] = T(bias ? sum + compute_t<T>(bias[channel]) : sum);
  }
  bool aligned() const { return aligned_width(kPackOf<T>, y) == kPackOf<T>; }
  __device__ bool packed() const { return channels % kPackOf<T> == 0 && group_channels % kPackOf<T> == 0; }
  __device__ void put_pack(int64_t group, int64_t, int64_t place, int64_t k, const float* sums, NoSums&) const {
    const int64_t channel = group * group_channels + k;
    Vec<T, kPackOf<T>> out;
    for (int i = 0; i < kPackOf<T>; ++i) out.x[i] = T(bias ? sums[i] + float(bias[channel + i]) : sums[i]);
    store(y + place * channels + channel, out);
  }
};

// The same of x, for BackwardPatches.
template <class T> struct DataResult : ImageResult<T> {
  ConvSizes z;
  Phases phases = Phases(z, 0);
  __device__ void start(int64_t b) { phases = Phases(z, b); }
  __device__ void put(int64_t, int64_t q, int64_t i, int64_t c, compute_t<T> sum) const {
    ImageResult<T>::put(phases.group, q, phases.place(z, i), c, sum);
  }
  __device__ void put_pack(int64_t, int64_t q, int64_t i, int64_t c, const float* sums, NoSums& none) const {
    ImageResult<T>::put_pack(phases.group, q, phases.place(z, i), c, sums, none);
  }
};

template <class T>
__global__ void __launch_bounds__(256) add_parts_kernel(T* dw, const compute_t<T>* part, int64_t chunks, int64_t size) {
  for (int64_t i = thread_in_grid(); i < size; i += threads_in_grid()) {
    compute_t<T> sum = 0;
    for (int64_t q = 0; q < chunks; ++q) sum += part[q * size + i];
    dw[i] = T(sum);
  }
}

// Splits the depth so that a small dw keeps a large GPU busy. Depends only on the shape, so that sums are the same on
// all GPUs.
int64_t chunk_of(const Product& p) {
  constexpr int64_t kTilesWanted = 1024, kLeast = 256;
  const int64_t tiles = p.batch * ((p.m + kGemmTile - 1) / kGemmTile) * ((p.n + kGemmTile - 1) / kGemmTile);
  const int64_t chunks = std::max<int64_t>(kTilesWanted / tiles, 1),
                chunk = std::max((p.k + chunks - 1) / chunks, kLeast);
  return (chunk + kMaxMmaDepth - 1) / kMaxMmaDepth * kMaxMmaDepth;
}
static_assert(kMaxMmaDepth % kGemmDepth == 0);

// dw, of T or what T computes in: the sum of so many parts.
template <class T> void add_parts(const View& dw, const compute_t<T>* part, int64_t number) {
  const auto add = [&]<class D>() {
    launch<add_parts_kernel<D>>(dw.device, covering(dw.device, dw.size()), dw.as<D>(), part, number, dw.size());
  };
  dw.dtype == dtype_of<T>::value ? add.template operator()<T>() : add.template operator()<compute_t<T>>();
}

// dw, of T or what T computes in, of operands of T: the sum of what product(result, sizes) makes of each chunk of the
// depth; it may decline by false.
template <class T, class F> bool weight_gradient(const View& dw, const ConvSizes& z, const F& product) {
  using C = compute_t<T>;
  Product p{z.groups(), z.k_group, z.taps() * z.c_group, z.places()};
  p.chunk = chunk_of(p);
  const Tensor parts({p.chunks(), dw.size()}, dtype_of<C>::value, dw.device);
  C* const part = View(parts).as<C>();
  if (!product(Parts<C>{part, p.batch, p.m, p.n}, p)) return false;
  add_parts<T>(dw, part, p.chunks());
  return true;
}

}  // namespace
}  // namespace ringtape::cuda
