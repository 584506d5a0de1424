#pragma once
#include "kernels/cuda/conv/wgmma_conv.cuh"
#include "kernels/cuda/conv/wgmma_conv.h"
#include "kernels/cuda/hopper/tensor_map.h"

// An image as the convolution of another one: forward, or of the gradient by the weights flipped and transposed. A
// block for each multiprocessor; the last warpgroup loads (wgmma_conv.cuh), two consumers multiply: the channels of the
// result are the rows of the products, the places their columns, so that sums of a channel are sums of registers over
// the whole life of a block.
//   64 channels    the weights of all taps stay in shared memory; the consumers take the tiles in turn
//   128 channels   each consumer has 64 of the channels of every tile; the weights come tap by tap, by the copy engine
//
// What the products become is the matter of a Result, of which a thread has two, a channel each:
//   kUses                          below
//   Result(norm, channels, c)      of channel c; norm: those values, one after the other
//   begin(x)                       x: of the channel, the same for its four lanes
//   put(x, word)                   the word to write for two rounded numbers beside a word of the second image
//   leave(places) -> Part          the sums of the channel's four lanes, after so many places
namespace ringtape::cuda {
namespace {

constexpr int kPlaces = 256, kConsumers = 2, kThreads = (kConsumers + 1) * kGroup;

template <class T_, int W_, int C_, class Result_, bool normalizes> struct ImageConv {
  using T = T_;
  using Result = Result_;
  using Part = typename Result::Part;
  static constexpr int W = W_, C = C_, kBlocks = C / kBlock;
  using Tile = ConvTile<W, kPlaces>;
  static constexpr bool kNormalizes = normalizes;  // what is loaded
  static constexpr bool kStreams = kBlocks > 1;
  static constexpr int kStages = !kStreams ? 9 : W > 16 ? 2 : 3;  // taps of the weights in shared memory
  static constexpr int kStaging = kStreams ? kConsumers : 1;

  struct Shared {
    T weights[kStages][C][kBlock];
    T copies[3][Tile::kHalo * W][kBlock];
    T out[kStaging][kPlaces][kBlock];
    float norm[3 * C];
    uint64_t weights_full[kStages], weights_empty[kStages];  // those that stay have the first alone
    uint64_t full[3], empty[3];                              // by copy
    uint64_t out_ready[kConsumers];                          // for the tile that a consumer has next
  };
  static_assert(sizeof(Shared) <= 227 * 1024);
};

struct ResultUses {
  bool transposed;    // weights, as the gradient does
  bool second_image;  // `Maps::beside`, read where the result is written
  bool norm;          // the channels' mean, scale and shift
};

struct Maps {
  CUtensorMap weights, out, beside;
};

#if RT_HOPPER

struct Share {  // of a block
  int tiles;
  __device__ explicit Share(int all) : tiles((all - int(blockIdx.x) + int(gridDim.x) - 1) / int(gridDim.x)) {}
  __device__ int tile(int i) const { return int(blockIdx.x) + i * int(gridDim.x); }
};

// Tap number n of those that the block multiplies, in the order of the consumers: columns of the window first.
template <class F> __device__ __forceinline__ void load_tap(typename F::Shared& s, const CUtensorMap& map, int n) {
  uint64_t* const full = s.weights_full + (F::kStreams ? n % F::kStages : 0);
  const int column = n % 9 / 3, row = n % 3, block = n / 9 % F::kBlocks * kBlock;
  if (F::kStreams) mbarrier_expect(full, sizeof s.weights[0]);
  for (int c = 0; c < F::C; c += kBlock) {
    auto* const to = s.weights[n % F::kStages][c];
    if constexpr (F::Result::kUses.transposed) load_box(to, &map, full, {c, 2 - column, 2 - row, block});
    else load_box(to, &map, full, {block, column, row, c});
  }
}

// Results of tile i may come to where they are staged, of a thread's consumer or, if that is one place, of the other
// one: what a second image has there is loaded.
template <class F>
__device__ __forceinline__ void prepare_out(typename F::Shared& s, const CUtensorMap& beside, const Share& share, int i,
                                            int group) {
  if (i >= share.tiles) return;
  uint64_t* const ready = s.out_ready + (F::kStreams ? group : i % kConsumers);
  if constexpr (F::Result::kUses.second_image) {
    const typename F::Tile tile(share.tile(i));
    mbarrier_expect(ready, sizeof s.out[0]);
    load_box(s.out[group % F::kStaging], &beside, ready, {group % F::kStaging * kBlock, 0, tile.row, tile.image});
  } else mbarrier_arrive(ready);
}

template <class F> __device__ void begin(typename F::Shared& s, const Maps& maps, const Share& share) {
  for (uint64_t& b : s.weights_full) mbarrier_init(&b, 1);
  for (uint64_t& b : s.weights_empty) mbarrier_init(&b, 4 * kConsumers);
  for (uint64_t& b : s.full) mbarrier_init(&b, 4);
  for (uint64_t& b : s.empty) mbarrier_init(&b, F::kStreams ? 4 * kConsumers : 4);
  for (uint64_t& b : s.out_ready) mbarrier_init(&b, 1);
  fence_mbarrier_init();
  if (!F::kStreams) mbarrier_expect(s.weights_full, sizeof s.weights);
  const int all = share.tiles * F::kBlocks * 9;
  for (int n = 0; n < F::kStages && n < all; ++n) load_tap<F>(s, maps.weights, n);
  for (int group = 0; group < F::kStaging; ++group) prepare_out<F>(s, maps.beside, share, 0, group);
}

template <class F>
__device__ __forceinline__ void load_tiles(typename F::Shared& s, const typename F::T* x, const Share& share) {
  const int thread = int(threadIdx.x) % kGroup;
  HaloLoader<typename F::T, F::W, kPlaces> loader(thread);
  loader.store_edges(s.copies[0], s.copies[2]);
  for (int fill = 0; fill < share.tiles * F::kBlocks; ++fill) {
    const typename F::Tile tile(share.tile(fill / F::kBlocks));
    const int first = fill % F::kBlocks * kBlock;
    loader.load_halo(x, tile, F::C, first);
    if constexpr (F::kNormalizes) loader.normalize(tile, s.norm, F::C, first);
#pragma unroll
    for (int shift = 0; shift < 3; ++shift) {
      if (fill > 0) mbarrier_wait(s.empty + shift, (fill - 1) & 1);
      loader.store_copy(s.copies[shift], shift);
      fence_async();
      __syncwarp();
      if (thread % 32 == 0) mbarrier_arrive(s.full + shift);
    }
  }
}

template <class F> struct Consumer {
  using T = typename F::T;
  using Result = typename F::Result;
  using Products = float[kPlaces / 2];
  typename F::Shared& s;
  const Maps& maps;
  const Share share;
  const int thread = int(threadIdx.x) % kGroup, lane = thread % 32, warp = thread / 32,
            group = int(threadIdx.x) / kGroup;
  const int of_group = F::kStreams ? group : 0;  // staging, and block of channels
  const int channel = of_group * kBlock + warp * 16 + lane / 4;
  Result results[2] = {{s.norm, F::C, channel}, {s.norm, F::C, channel + 8}};
  int n = 0;  // taps, of weights that are streamed

  // A tile begins when the consumer of the one before has seen all that it loads: a wait by parity is only right for
  // those who know that the phase before has ended.
  __device__ __forceinline__ void begin_after_other() const { bar_sync(3 + group, kConsumers * kGroup); }
  __device__ __forceinline__ void let_other_begin() const { bar_arrive(4 - group, kConsumers * kGroup); }

  // The products of tap number `done` are.
  __device__ __forceinline__ void release(int done, bool last_of_copy, int copy) const {
    if (lane == 0 && last_of_copy) mbarrier_arrive(s.empty + copy);
    if constexpr (F::kStreams) {
      uint64_t* const empty = s.weights_empty + done % F::kStages;
      if (lane == 0) mbarrier_arrive(empty);
      const int next = done + F::kStages;
      if (group != 0 || thread != 0 || next >= share.tiles * F::kBlocks * 9) return;
      mbarrier_wait(empty, done / F::kStages & 1);
      load_tap<F>(s, maps.weights, next);
    }
  }

  __device__ __forceinline__ void multiply_tap(Products& d, int shift, int row, bool first) {
    const int stage = F::kStreams ? n % F::kStages : shift * 3 + row;
    if (F::kStreams) mbarrier_wait(s.weights_full + stage, n / F::kStages & 1);
    constexpr bool kOuter = Result::kUses.transposed;
    const uint64_t a = wgmma_operand(s.weights[stage][of_group * kBlock], 16, 1024),
                   b = wgmma_operand(s.copies[shift][row * F::W], 16, 1024);
    keep(d);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < 4; ++k)
      wgmma<T, kPlaces / 2, kOuter>(d, wgmma_advance(a, k * (kOuter ? 2048 : 32)), wgmma_advance(b, k * 32),
                                    !(first && k == 0));
    wgmma_commit();
    ++n;
  }

  __device__ __forceinline__ void multiply(Products& d, int i) {
    if (!F::kStreams && i > 0) begin_after_other();
    for (int block = 0; block < F::kBlocks; ++block) {
      const int fill = i * F::kBlocks + block;
#pragma unroll
      for (int shift = 0; shift < 3; ++shift) {
        mbarrier_wait(s.full + shift, fill & 1);
        if (!F::kStreams && shift == 2 && i + 1 < share.tiles) let_other_begin();
#pragma unroll
        for (int row = 0; row < 3; ++row) {
          const bool first = block == 0 && shift + row == 0;
          multiply_tap(d, shift, row, first);
          if (first) continue;
          wgmma_wait<1>();
          release(n - 2, row == 0, (shift + 2) % 3);
        }
      }
    }
    wgmma_wait<0>();
    keep(d);
    release(n - 1, true, 2);
  }

  static __device__ __forceinline__ Vec<float, 2> rounded(const Products& d, int j) {
    return unpack<T>(pack<T>(d[j], d[j + 1]));
  }

  // Numbers of f16 are rounded before all else, those of bf16 one by one: otherwise the compiler keeps some of them in
  // local memory.
  __device__ __forceinline__ void stage(Products& d, T* staged) {
    constexpr bool kRoundsFirst = std::is_same_v<T, f16>;
    if constexpr (kRoundsFirst)
#pragma unroll
      for (int j = 0; j < kPlaces / 2; j += 2) {
        const Vec<float, 2> x = rounded(d, j);
        d[j] = x.x[0], d[j + 1] = x.x[1];
      }
    T* const row = staged + swizzled(lane / 16 * 8 + lane % 8, warp * 2 + lane / 8 % 2);
#pragma unroll
    for (int j = 0; j < kPlaces / 8; j += 2) {
      uint32_t words[4] = {};
      if constexpr (Result::kUses.second_image) ldmatrix_trans(words, row + j * 8 * kBlock);
#pragma unroll
      for (int m = 0; m < 4; ++m) {
        const int at = j * 4 + m * 2;
        words[m] = results[m % 2].put(kRoundsFirst ? Vec<float, 2>{d[at], d[at + 1]} : rounded(d, at), words[m]);
      }
      stmatrix_trans(row + j * 8 * kBlock, words);
    }
  }

  // `before`: tiles of this consumer.
  __device__ __forceinline__ void finish(Products& d, int i, int before) {
    if (before == 0)
      for (int h = 0; h < 2; ++h) results[h].begin(__shfl_sync(kAllLanes, rounded(d, h * 2).x[0], lane & ~3));
    mbarrier_wait(s.out_ready + group, before & 1);
    T* const staged = s.out[of_group][0];
    stage(d, staged);
    fence_async();
    bar_sync(1 + group, kGroup);
    if (thread != 0) return;
    const typename F::Tile tile(share.tile(i));
    store_box(&maps.out, staged, {of_group * kBlock, 0, tile.row, tile.image});
    store_commit();
    store_wait_read<0>();
    prepare_out<F>(s, maps.beside, share, i + 1, group);
  }

  __device__ __forceinline__ void run(typename F::Part* parts) {
    constexpr int step = F::kStreams ? 1 : kConsumers;
    const int first = F::kStreams ? 0 : group;
    if (!F::kStreams && first < share.tiles) mbarrier_wait(s.weights_full, 0);
    Products d;
    int tiles = 0;
    for (int i = first; i < share.tiles; i += step, ++tiles) {
      multiply(d, i);
      finish(d, i, tiles);
    }
    if constexpr (!std::is_void_v<typename F::Part>) {
      const int number = F::kStreams ? int(blockIdx.x) : int(blockIdx.x) * kConsumers + group;
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const auto all = results[h].leave(tiles * kPlaces);
        if (lane % 4 == 0) parts[number * F::C + channel + h * 8] = all;
      }
    }
  }
};

#endif

template <class F>
__global__ void __launch_bounds__(kThreads, 1)
    wgmma_image_kernel(const __grid_constant__ Maps maps, const typename F::T* x, ImageNorm norm,
                       typename F::Part* parts, int tiles) {
#if RT_HOPPER
  SHARED_DYN_ALIGNED(typename F::Shared, shared);
  typename F::Shared& s = *shared;
  const Share share(tiles);
  if (threadIdx.x == 0) begin<F>(s, maps, share);
  if constexpr (F::kNormalizes || F::Result::kUses.norm) place_norm(s.norm, norm, F::C);
  __syncthreads();
  if (threadIdx.x >= kConsumers * kGroup) load_tiles<F>(s, x, share);
  else Consumer<F>{s, maps, share}.run(parts);
#endif
}

// y = the convolution of x by w, beside the second image, which may be undefined if the Result does not read it.
template <class F>
ConvParts run_wgmma_image(const View& y, const View& x, const View& w, const View& beside, const NormOperand& norm) {
  using Part = typename F::Part;
  const int64_t images = y.dims[0], tiles = images * F::Tile::kOfImage;
  const int blocks = int(std::min<int64_t>(tiles, properties(y.device.index).multiprocessors));
  ConvParts out{{}, F::kStreams ? blocks : blocks * kConsumers};
  if constexpr (!std::is_void_v<Part>)
    out.parts = Tensor({out.number * F::C * int64_t(sizeof(Part))}, DType::u8, y.device);
  const auto image = [&](const View& v) {
    return tensor_map(v.dtype, v.data, {F::C, F::W, F::W, images}, {kBlock, F::W, F::Tile::kRows, 1});
  };
  const Maps maps = {tensor_map(w.dtype, w.data, {F::C, 3, 3, F::C}, {kBlock, 1, 1, kBlock}), image(y),
                     image(F::Result::kUses.second_image ? beside : y)};
  launch<wgmma_image_kernel<F>>(y.device, {dim3(unsigned(blocks)), dim3(kThreads), sizeof(typename F::Shared)}, maps,
                                x.as<typename F::T>(),
                                ImageNorm{channels_of(norm.mean, norm.var, norm.w, norm.eps), View(norm.b).as<float>()},
                                static_cast<Part*>(View(out.parts).data), int(tiles));
  return out;
}

}  // namespace
}  // namespace ringtape::cuda
