#pragma once
#include "kernels/cuda/conv/conv_sums.cuh"
#include "kernels/cuda/hopper/bulk_copy.cuh"
#include "kernels/cuda/hopper/wgmma.cuh"
#include "kernels/cuda/vector.cuh"

// What convolutions by wgmma share. A block of warpgroups goes over tiles of 256 places, whole rows of an image. One
// warpgroup loads: 16 bytes of x at a time, which it normalises once and stores three times, shifted by a column each,
// so that every tap of the window is an operand that begins with a pattern: a row further down is a row of the copy
// further on. Others multiply.
namespace ringtape::cuda {
namespace {

constexpr int kGroup = 128;  // threads of a warpgroup
constexpr int kBlock = 64;   // channels in 128 bytes: what a row of an operand has
constexpr int kWgmmaPack = 8, kChunks = kBlock / kWgmmaPack;

template <int W, int places> struct ConvTile {
  static constexpr int kRows = places / W, kHalo = kRows + 2, kOfImage = W / kRows;
  int image, row;  // its first
  __device__ explicit ConvTile(int number) : image(number / kOfImage), row(number % kOfImage * kRows) {}
  __device__ bool inside(int halo) const { return row + halo > 0 && row + halo <= W; }
};

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
  static constexpr int kColumns = kGroup / kChunks, kAcross = W / kColumns, kHalo = Tile::kHalo;
  int chunk, column;
  Pack v[kAcross][kHalo];

  __device__ explicit HaloLoader(int thread) : chunk(thread % kChunks), column(thread / kChunks) {}

  // Of `channels`, kBlock from `first` on.
  __device__ __forceinline__ void load_halo(const T* x, const Tile& tile, int channels, int first) {
    const T* const from =
        x + ((int64_t{tile.image} * W + tile.row - 1) * W + column) * channels + first + chunk * kWgmmaPack;
#pragma unroll
    for (int i = 0; i < kAcross; ++i)
#pragma unroll
      for (int row = 0; row < kHalo; ++row)
        v[i][row] = tile.inside(row)
                        ? load<4>(reinterpret_cast<const uint32_t*>(from + (row * W + i * kColumns) * channels))
                        : Pack{};
  }

  // By mean, scale and shift of all channels, kBlock from `first` on.
  __device__ __forceinline__ void normalize(const Tile& tile, const float* values, int channels, int first) {
    float of[3][kWgmmaPack];
#pragma unroll
    for (int k = 0; k < 3; ++k)
#pragma unroll
      for (int i = 0; i < kWgmmaPack; ++i) of[k][i] = values[k * channels + first + chunk * kWgmmaPack + i];
#pragma unroll
    for (int row = 0; row < kHalo; ++row) {
      if (!tile.inside(row)) continue;  // what is outside of the image is 0
#pragma unroll
      for (int i = 0; i < kAcross; ++i)
#pragma unroll
        for (int k = 0; k < kWgmmaPack; k += 2) {
          uint32_t& word = v[i][row].x[k / 2];
          Vec<float, 2> two = unpack<T>(word);
#pragma unroll
          for (int e = 0; e < 2; ++e) {
            const float y = Normalize<float>{of[0][k + e], of[1][k + e], of[2][k + e]}(two.x[e]);
            two.x[e] = y < 0 ? 0 : y;
          }
          word = pack<T>(two.x[0], two.x[1]);
        }
    }
  }

  // Copy `shift` has column x + shift - 1 at x.
  __device__ __forceinline__ void store_copy(T (*copy)[kBlock], int shift) const {
#pragma unroll
    for (int i = 0; i < kAcross; ++i) {
      const int to = column + i * kColumns + 1 - shift;
      if (to < 0 || to >= W) continue;
      auto* const at = reinterpret_cast<uint32_t*>(&copy[0][0] + swizzled(to, chunk));
#pragma unroll
      for (int row = 0; row < kHalo; ++row) store(at + row * W * kBlock / 2, v[i][row]);
    }
  }

  // Beside the image there are zeros, in the first copy on the left, in the last one on the right.
  __device__ void store_edges(T (*left)[kBlock], T (*right)[kBlock]) const {
    if (column != 0) return;
    for (int row = 0; row < kHalo; ++row) {
      store(reinterpret_cast<uint32_t*>(&left[0][0] + swizzled(row * W, chunk)), Pack{});
      store(reinterpret_cast<uint32_t*>(&right[0][0] + swizzled(row * W + W - 1, chunk)), Pack{});
    }
  }
};

// By the first threads of a block, before a barrier.
__device__ inline void place_norm(float* values, const ImageNorm& norm, int channels) {
  const int c = int(threadIdx.x);
  if (c >= channels) return;
  const Normalize<float> n = Normalize<float>::of(norm.by, norm.b, c);
  values[c] = n.mean, values[channels + c] = n.scale, values[2 * channels + c] = n.shift;
}

#endif

// Calls f<type, width, channels>() for images that wgmma_claims().
template <class F> auto dispatch_wgmma(const View& images, const F& f) {
  const auto of_type = [&]<class T>() {
    const bool large = images.dims[2] == 32;
    if (images.dims[3] == 128) return large ? f.template operator()<T, 32, 128>() : f.template operator()<T, 16, 128>();
    return large ? f.template operator()<T, 32, 64>() : f.template operator()<T, 16, 64>();
  };
  return images.dtype == DType::bf16 ? of_type.template operator()<bf16>() : of_type.template operator()<f16>();
}

}  // namespace
}  // namespace ringtape::cuda
