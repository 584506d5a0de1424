#pragma once
#include <algorithm>

#include "core/tensor.h"
#include "kernels/cuda/gemm_mma.cuh"
#include "kernels/window.h"

// The operands and results of convolutions as matrix products, one per group, read and written in place: patches are
// never written to memory.
namespace ringtape::cuda {
namespace {

struct ConvSizes {
  // y is (n, rows, columns, k); *_group: channels of one group.
  int n, h, w, c, rows, columns, k, r, s, c_group, k_group;
  int stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w;

  ConvSizes(const View& y, const View& x, const View& weights, const Window& p)
      : n(int(x.dims[0])), h(int(x.dims[1])), w(int(x.dims[2])), c(int(x.dims[3])), rows(int(y.dims[1])),
        columns(int(y.dims[2])), k(int(y.dims[3])), r(int(weights.dims[1])), s(int(weights.dims[2])),
        c_group(int(weights.dims[3])), k_group(int(k / (c / c_group))), stride_h(int(p.stride_h)),
        stride_w(int(p.stride_w)), pad_h(int(p.pad_h)), pad_w(int(p.pad_w)), dilation_h(int(p.dilation_h)),
        dilation_w(int(p.dilation_w)) {
    RT_CHECK_AS(ShapeError,
                x.dims[0] * std::max(x.dims[1], y.dims[1]) < INT32_MAX && x.dims[2] < INT32_MAX &&
                    taps() * std::max(c, k) < INT32_MAX,
                "convolution of ", x.shape(), " by ", weights.shape(),
                ": too large for one call on a GPU; divide the batch");
  }
  int64_t groups() const { return c / c_group; }
  int64_t taps() const { return int64_t(r) * s; }
  int64_t places() const { return int64_t(n) * rows * columns; }
};

// The operands. Packs of 8 are of channels of one tap; an operand's Walk goes along the depth.
template <class T>
bool packed(const T* data, int64_t channels, int64_t of_group) {
  return channels % 8 == 0 && of_group % 8 == 0 && aligned_width(8, data) == 8;
}

// `inner` += n, of `size`; what is over goes into `outer`, of `of`; returns what is over there.
__device__ inline int carry(int& inner, int n, int size, int& outer, int of) {
  int over = 0;
  for (inner += n; inner >= size; inner -= size)
    if (++outer == of) outer = 0, ++over;
  return over;
}

// Outer: a position of y; depth: (r, s, c) of its kernel, over x. `swapped` exchanges the two.
template <class T, bool swapped>
struct Patches {
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
  __device__ Walk walk(int64_t group, int64_t i, int64_t p) const {
    const int64_t place = swapped ? p : i;
    const int tap = int(swapped ? i : p), row = int(place / z.columns);
    return {data + int64_t(row / z.rows) * z.h * z.w * z.c + group * z.c_group, row % z.rows, int(place % z.columns),
            tap / z.c_group / z.s, tap / z.c_group % z.s, tap % z.c_group};
  }
  __device__ T at(int64_t group, int64_t i, int64_t p) const {
    const T* const from = walk(group, i, p).get(*this);
    return from ? *from : T(0);
  }
};

// Outer: a position of x; depth: (r, s, k), over the positions of y that it contributed to.
template <class T>
struct BackwardPatches {
  const T* data;
  ConvSizes z;
  struct Walk {
    const T* image;
    int row, column, r, s, k;
    __device__ const T* get(const BackwardPatches& x) const {
      const ConvSizes& z = x.z;
      int i = row + z.pad_h - r * z.dilation_h, j = column + z.pad_w - s * z.dilation_w;
      if (i < 0 || j < 0) return nullptr;
      if (z.stride_h > 1 || z.stride_w > 1) {
        if (i % z.stride_h != 0 || j % z.stride_w != 0) return nullptr;
        i /= z.stride_h, j /= z.stride_w;
      }
      return i < z.rows && j < z.columns ? image + (int64_t{i} * z.columns + j) * z.k + k : nullptr;
    }
    __device__ void advance(const BackwardPatches& x, int n) { r += carry(k, n, x.z.k_group, s, x.z.s); }
  };
  bool packed() const { return cuda::packed(data, z.k, z.k_group); }
  __host__ __device__ int channels() const { return z.k_group; }
  static constexpr bool outer_first() { return false; }
  __device__ Walk walk(int64_t group, int64_t place, int64_t tap) const {
    const int row = int(place / z.w), t = int(tap);
    return {data + int64_t(row / z.h) * z.rows * z.columns * z.k + group * z.k_group, row % z.h, int(place % z.w),
            t / z.k_group / z.s, t / z.k_group % z.s, t % z.k_group};
  }
  __device__ T at(int64_t group, int64_t place, int64_t tap) const {
    const T* const from = walk(group, place, tap).get(*this);
    return from ? *from : T(0);
  }
};

// Outer: an output channel; depth: (r, s, c).
template <class T>
struct Weights {
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

// Outer: an input channel; depth: (r, s, k).
template <class T>
struct TransposedWeights {
  const T* data;
  ConvSizes z;
  struct Walk {
    const T* from;  // of the group, channel c
    int tap, k;
    __device__ const T* get(const TransposedWeights& w) const {
      return from + (int64_t{k} * w.z.r * w.z.s + tap) * w.z.c_group;
    }
    __device__ void advance(const TransposedWeights& w, int n) {
      for (k += n; k >= w.z.k_group; k -= w.z.k_group) ++tap;
    }
  };
  bool packed() const { return cuda::packed(data, z.c, z.c_group); }
  static constexpr bool outer_first() { return true; }
  __device__ Walk walk(int64_t group, int64_t c, int64_t tap) const {
    return {data + group * z.k_group * z.r * z.s * z.c_group + c, int(tap) / z.k_group, int(tap) % z.k_group};
  }
  __device__ T at(int64_t group, int64_t c, int64_t tap) const { return *walk(group, c, tap).get(*this); }
};

// Outer: an output channel; depth: a position of y.
template <class T>
struct OutputGradient {
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
template <class T>
struct ImageResult {
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

// (chunks, K, R S C): partial sums of dw.
template <class C>
struct WeightParts {
  using Element = C;
  using Sums = NoSums;
  C* part;
  int64_t size, k_group, taps;
  __device__ void put(int64_t group, int64_t chunk, int64_t k, int64_t tap, C sum) const {
    part[chunk * size + (group * k_group + k) * taps + tap] = sum;
  }
  bool aligned() const { return true; }
  __device__ bool packed() const { return taps % kPackOf<C> == 0; }
  __device__ void put_pack(int64_t group, int64_t chunk, int64_t k, int64_t tap, const float* sums, NoSums&) const {
    store(part + chunk * size + (group * k_group + k) * taps + tap, load<kPackOf<C>>(sums));
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
  return (chunk + kMmaDepth - 1) / kMmaDepth * kMmaDepth;
}
static_assert(kMmaDepth % kGemmDepth == 0);

// dw, of T or what T computes in, of operands of T: the sum of what product(result, sizes) makes of each chunk of the
// depth; it may decline by false.
template <class T, class F>
bool weight_gradient(const View& dw, const ConvSizes& z, const F& product) {
  using C = compute_t<T>;
  Product p{z.groups(), z.k_group, z.taps() * z.c_group, z.places()};
  p.chunk = chunk_of(p);
  const Tensor parts({p.chunks(), dw.size()}, dtype_of<C>::value, dw.device);
  C* const part = View(parts).as<C>();
  if (!product(WeightParts<C>{part, dw.size(), p.m, p.n}, p)) return false;
  const auto add = [&]<class D>() {
    launch<add_parts_kernel<D>>(dw.device, covering(dw.device, dw.size()), dw.as<D>(), part, p.chunks(), dw.size());
  };
  dw.dtype == dtype_of<T>::value ? add.template operator()<T>() : add.template operator()<C>();
  return true;
}

}  // namespace
}  // namespace ringtape::cuda
