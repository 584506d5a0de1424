#pragma once
#include "kernels/cuda/conv/conv_sums.cuh"
#include "kernels/cuda/conv/wgmma_conv.h"
#include "kernels/cuda/hopper/bulk_copy.cuh"
#include "kernels/cuda/hopper/tensor_map.h"
#include "kernels/cuda/hopper/wgmma.cuh"
#include "kernels/cuda/vector.cuh"

// What convolutions by wgmma share. A block of warpgroups goes over tiles: whole rows of an image or, of small images,
// several side by side, as if they were one wide image. One warpgroup loads: 16 bytes of x at a time, which it
// normalises once and stores three times, shifted by a column each, so that every tap of the window is an operand that
// begins with a pattern: a row further down is a row of the copy further on. Others multiply.
namespace ringtape::cuda {
namespace {

constexpr int kGroup = 128;  // threads of a warpgroup
constexpr int kBlock = 64;   // channels in 128 bytes: what a row of an operand has
constexpr int kWgmmaPack = 8, kChunks = kBlock / kWgmmaPack;

template <int W, int places> struct ConvTile {
  static constexpr int kRows = std::min(W, places / W), kImages = places / (W * kRows), kWide = W * kImages,
                       kHalo = kRows + 2, kOfImage = W / kRows;
  // Rows of the halo that may be inside of an image.
  static constexpr int kFirst = kOfImage == 1, kEnd = kHalo - kFirst;
  static int64_t number(int64_t images) { return divide_up(images, int64_t{kImages}) * kOfImage; }

  int image, row;  // its first
  int there;       // of its images: the last tile may have fewer
  __device__ ConvTile(int number, int images)
      : image(number / kOfImage * kImages), row(number % kOfImage * kRows), there(min(kImages, images - image)) {}
  __device__ bool inside(int halo) const { return row + halo > 0 && row + halo <= W; }
  // Whether the image of a column is there.
  __device__ bool has(int column) const { return kImages == 1 || column / W < there; }
};

// Boxes of the copy engine that make a tile, of kBlock channels: one or, of several images, one for each row. Calls
// f(row, place), the first of each.
template <class Tile> constexpr int kBoxRows = Tile::kImages > 1 ? 1 : Tile::kRows;
template <class Tile, class F> __device__ __forceinline__ void for_each_box(const F& f) {
  for (int row = 0; row < Tile::kRows; row += kBoxRows<Tile>) f(row, row * Tile::kWide);
}
template <class Tile> CUtensorMap tile_map(const View& v) {
  return tensor_map(v.dtype, v.data, {v.dims[3], v.dims[2], v.dims[1], v.dims[0]},
                    {kBlock, v.dims[2], kBoxRows<Tile>, Tile::kImages});
}

// Where chunk of 16 bytes of a row of 128 bytes is stored.
__device__ inline int swizzled(int row, int chunk) { return row * kBlock + (chunk ^ (row & 7)) * kWgmmaPack; }

// Two numbers in a word. As a whole: taken apart into 16 bits each they would need twice the registers.
template <class T> __device__ __forceinline__ Vec<float, 2> unpack(uint32_t word) {
  if constexpr (std::is_same_v<T, bf16>)
    return {std::bit_cast<float>(word << 16), std::bit_cast<float>(word & 0xffff0000u)};
  const auto two = std::bit_cast<Vec<T, 2>>(word);
  return {float(two.x[0]), float(two.x[1])};
}
template <class T> __device__ __forceinline__ uint32_t pack(float low, float high) {
#ifdef __CUDA_ARCH__
  if constexpr (std::is_same_v<T, bf16>) {
    uint32_t word;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
    return word;
  }
#endif
  return std::bit_cast<uint32_t>(Vec<T, 2>{T(low), T(high)});
}

// How images are normalised, for all channels; without `by.mean` they stay as they are.
struct ImageNorm {
  ChannelsF by;
  const float* b;
};

#if RT_HOPPER

// A thread's share of the halo of a tile: one pack of channels of every kColumns-th column.
template <class T, int W, int places> struct HaloLoader {
  using Tile = ConvTile<W, places>;
  using Pack = Vec<uint32_t, kWgmmaPack / 2>;
  static constexpr int kColumns = kGroup / kChunks, kAcross = Tile::kWide / kColumns, kHalo = Tile::kHalo;
  static constexpr int kStep = Tile::kImages > 1 ? kColumns* W : kColumns;  // places between a thread's columns
  int chunk, column;
  Pack v[kAcross][kHalo];

  __device__ explicit HaloLoader(int thread) : chunk(thread % kChunks), column(thread / kChunks) {}

  // Of `channels`, kBlock from `first` on.
  __device__ __forceinline__ void load_halo(const T* x, const Tile& tile, int channels, int first) {
    const T* const from = x + ((int64_t{tile.image + column / W} * W + tile.row - 1) * W + column % W) * channels +
                          first + chunk * kWgmmaPack;
#pragma unroll
    for (int i = 0; i < kAcross; ++i)
#pragma unroll
      for (int row = Tile::kFirst; row < Tile::kEnd; ++row)
        v[i][row] = tile.inside(row) && tile.has(column + i * kColumns)
                        ? load<4>(reinterpret_cast<const uint32_t*>(from + (row * W + i * kStep) * channels))
                        : Pack{};
  }

  // By mean, scale and shift of all `channels`, kBlock from `first` on.
  __device__ __forceinline__ void normalize(const Tile& tile, const float* values, int channels, int first) {
#pragma unroll
    for (int k = 0; k < kWgmmaPack; k += 2) {
      Vec<float, 2> of[3];
#pragma unroll
      for (int j = 0; j < 3; ++j) of[j] = load<2>(values + j * channels + first + chunk * kWgmmaPack + k);
#pragma unroll
      for (int i = 0; i < kAcross; ++i)
#pragma unroll
        for (int row = Tile::kFirst; row < Tile::kEnd; ++row) {
          if (!tile.inside(row) || !tile.has(column + i * kColumns)) continue;  // what is outside of images is 0
          uint32_t& word = v[i][row].x[k / 2];
          Vec<float, 2> two = unpack<T>(word);
#pragma unroll
          for (int e = 0; e < 2; ++e) {
            const float y = Normalize<float>{of[0].x[e], of[1].x[e], of[2].x[e]}(two.x[e]);
            two.x[e] = y < 0 ? 0 : y;
          }
          word = pack<T>(two.x[0], two.x[1]);
        }
      __syncwarp();  // the compiler begins nothing of the next before it: it has no registers for that
    }
  }

  // Copy `shift` has column x + shift - 1 at x.
  __device__ __forceinline__ void store_copy(T (*copy)[kBlock], int shift) const {
#pragma unroll
    for (int i = 0; i < kAcross; ++i) {
      const int in_image = (column + i * kColumns) % W + 1 - shift, to = column + i * kColumns + 1 - shift;
      if (in_image < 0 || in_image >= W) continue;
      auto* const at = reinterpret_cast<uint32_t*>(&copy[0][0] + swizzled(to, chunk));
#pragma unroll
      for (int row = Tile::kFirst; row < Tile::kEnd; ++row) store(at + row * Tile::kWide * kBlock / 2, v[i][row]);
    }
  }

  // Beside images there are zeros, in the first copy on the left, in the last one on the right; above and below, too,
  // where nothing else ever is.
  __device__ void store_edges(T (&copies)[3][kHalo * Tile::kWide][kBlock]) const {
#pragma unroll 1
    for (int at = column; at < kHalo * Tile::kWide; at += kColumns) {
      const int row = at / Tile::kWide;
      const bool outside = row < Tile::kFirst || row >= Tile::kEnd;
      for (int shift = 0; shift < 3; ++shift)
        if (outside || (shift == 0 && at % W == 0) || (shift == 2 && at % W == W - 1))
          store(reinterpret_cast<uint32_t*>(&copies[shift][0][0] + swizzled(at, chunk)), Pack{});
    }
  }
};

// Mean, scale and shift of channels from `first` on, by the threads of a block before a barrier.
__device__ inline void place_norm(float* values, const ImageNorm& norm, int channels, int first) {
  for (int c = int(threadIdx.x); c < channels; c += int(blockDim.x)) {
    const Normalize<float> n = Normalize<float>::of(norm.by, norm.b, first + c);
    values[c] = n.mean, values[channels + c] = n.scale, values[2 * channels + c] = n.shift;
  }
}

#endif

// Calls f<type, width>() for images that wgmma_claims().
template <class F> auto dispatch_wgmma(const View& images, const F& f) {
  const auto of_type = [&]<class T>() {
    switch (images.dims[2]) {
      case 4: return f.template operator()<T, 4>();
      case 8: return f.template operator()<T, 8>();
      case 16: return f.template operator()<T, 16>();
      default: return f.template operator()<T, 32>();
    }
  };
  return images.dtype == DType::bf16 ? of_type.template operator()<bf16>() : of_type.template operator()<f16>();
}

}  // namespace
}  // namespace ringtape::cuda
