#pragma once
#include "kernels/cuda/conv/wgmma_conv.cuh"

// An image as the convolution of another one: forward, or of the gradient by the weights flipped and transposed. A
// block for each multiprocessor; the last warpgroup loads (wgmma_conv.cuh), two consumers multiply: the channels of the
// result are the rows of the products, the places their columns, so that sums of a channel are sums of registers over
// the whole life of a block.
//   64 channels   the weights of all taps stay in shared memory; the consumers take the tiles in turn
//   more          a block has 128 of the channels, each consumer 64 of them of every tile; the weights come tap by tap,
//                 by the copy engine
//
// What the products become is the matter of a Result, of which a thread has two, a channel each:
//   kUses                          below
//   Result(norm, channels, c)      of channel c; norm: those values, one after the other
//   begin(x)                       x: of the channel, the same for its four lanes
//   put(x, word, there)            the word to write for two rounded numbers beside a word of the second image; where
//                                  their image is not there, nothing is written, and there are no sums
//   leave(places) -> Part          the sums of the channel's four lanes, after so many places
namespace ringtape::cuda {
namespace {

constexpr int kPlaces = 256, kConsumers = 2, kThreads = (kConsumers + 1) * kGroup;

// Filters: those of a block.
template <class T_, int W_, int filters, class Result_, bool normalizes> struct ImageConv {
  using T = T_;
  using Result = Result_;
  using Part = typename Result::Part;
  static constexpr int W = W_, kFilters = filters;
  using Tile = ConvTile<W, kPlaces>;
  static constexpr bool kNormalizes = normalizes;  // what is loaded
  static constexpr bool kStreams = kFilters > kBlock;
  static constexpr int kStages = !kStreams ? 9 : W == 16 ? 3 : 2;  // taps of the weights in shared memory
  static constexpr int kStaging =
      kStreams && W > 4 ? kConsumers : 1;  // the consumers' own, or one that they use in turn

  struct Shared {
    T weights[kStages][kFilters][kBlock];
    T copies[3][Tile::kHalo * Tile::kWide][kBlock];
    T out[kStaging][kPlaces][kBlock];
    float norm[3 * (kStreams ? kWgmmaChannels : kFilters)];
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

// Of a block: every step-th tile from `first` on, and of the result kFilters channels from `filters` on.
template <class F> struct Share {
  int images, channels, filters, first, step, tiles;
  __device__ Share(int images, int tiles, int of_channels)
      : images(images), channels(F::kStreams ? of_channels : F::kFilters),
        filters(int(blockIdx.x) % parts() * F::kFilters), first(int(blockIdx.x) / parts()),
        step(int(gridDim.x) / parts()), tiles((tiles - first + step - 1) / step) {}
  __device__ int parts() const { return channels / F::kFilters; }
  __device__ int blocks() const { return channels / kBlock; }
  __device__ int taps() const { return tiles * blocks() * 9; }
  __device__ typename F::Tile tile(int i) const { return {first + i * step, images}; }
  // The first channel of a consumer.
  __device__ int channel(int consumer) const { return filters + (F::kStreams ? consumer * kBlock : 0); }
};

// Tap number n of those that the block multiplies, of channels from `depth` on, in the order of the consumers: columns
// of the window first.
template <class F>
__device__ __forceinline__ void load_tap(typename F::Shared& s, const CUtensorMap& map, int filters, int n, int depth) {
  uint64_t* const full = s.weights_full + (F::kStreams ? n % F::kStages : 0);
  const int column = n % 9 / 3, row = n % 3;
  if (F::kStreams) mbarrier_expect(full, sizeof s.weights[0]);
  for (int c = 0; c < F::kFilters; c += kBlock) {
    auto* const to = s.weights[n % F::kStages][c];
    if constexpr (F::Result::kUses.transposed) load_box(to, &map, full, {filters + c, 2 - column, 2 - row, depth});
    else load_box(to, &map, full, {depth, column, row, filters + c});
  }
}

// Results may come to where they are staged, use number `use` of that place: what a second image has there is loaded.
template <class F>
__device__ __forceinline__ void prepare_out(typename F::Shared& s, const CUtensorMap& beside, const Share<F>& share,
                                            int use, int staging) {
  const int consumer = F::kStaging > 1 ? staging : use % kConsumers,
            i = F::kStreams && F::kStaging == 1 ? use / kConsumers : use;
  if (i >= share.tiles) return;
  uint64_t* const ready = s.out_ready + consumer;
  if constexpr (F::Result::kUses.second_image) {
    const typename F::Tile tile = share.tile(i);
    mbarrier_expect(ready, sizeof s.out[0]);
    for_each_box<typename F::Tile>([&](int row, int place) {
      load_box(s.out[staging][place], &beside, ready, {share.channel(consumer), 0, tile.row + row, tile.image});
    });
  } else mbarrier_arrive(ready);
}

template <class F> __device__ void begin(typename F::Shared& s, const Maps& maps, const Share<F>& share) {
  for (uint64_t& b : s.weights_full) mbarrier_init(&b, 1);
  for (uint64_t& b : s.weights_empty) mbarrier_init(&b, 4 * kConsumers);
  for (uint64_t& b : s.full) mbarrier_init(&b, 4);
  for (uint64_t& b : s.empty) mbarrier_init(&b, F::kStreams ? 4 * kConsumers : 4);
  for (uint64_t& b : s.out_ready) mbarrier_init(&b, 1);
  fence_mbarrier_init();
  if (!F::kStreams) mbarrier_expect(s.weights_full, sizeof s.weights);
  for (int n = 0; n < F::kStages && n < share.taps(); ++n) load_tap<F>(s, maps.weights, share.filters, n, 0);
  for (int staging = 0; staging < F::kStaging; ++staging) prepare_out<F>(s, maps.beside, share, 0, staging);
}

template <class F>
__device__ __forceinline__ void load_tiles(typename F::Shared& s, const typename F::T* x, const Share<F>& share) {
  const int thread = int(threadIdx.x) % kGroup;
  HaloLoader<typename F::T, F::W, kPlaces> loader(thread);
  loader.store_edges(s.copies);
  int fill = 0;
  for (int i = 0; i < share.tiles; ++i) {
    const typename F::Tile tile = share.tile(i);
    for (int depth = 0; depth < share.channels; depth += kBlock, ++fill) {
      loader.load_halo(x, tile, share.channels, depth);
      if constexpr (F::kNormalizes) loader.normalize(tile, s.norm, share.channels, depth);
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
}

template <class F> struct Consumer {
  using T = typename F::T;
  using Result = typename F::Result;
  using Products = float[kPlaces / 2];
  typename F::Shared& s;
  const Maps& maps;
  const Share<F> share;
  const int thread = int(threadIdx.x) % kGroup, lane = thread % 32, warp = thread / 32,
            group = int(threadIdx.x) / kGroup, staging = F::kStaging > 1 ? group : 0;
  const int channel = share.channel(group) + warp * 16 + lane / 4;
  Result results[2] = {{s.norm, share.channels, channel}, {s.norm, share.channels, channel + 8}};
  int n = 0;       // taps, of weights that are streamed
  int loaded = 0;  // the channels of the last that has been loaded

  // A tile begins when the consumer of the one before has seen all that it loads: a wait by parity is only right for
  // those who know that the phase before has ended.
  __device__ __forceinline__ void begin_after_other() const { bar_sync(3 + group, kConsumers * kGroup); }
  __device__ __forceinline__ void let_other_begin() const { bar_arrive(4 - group, kConsumers * kGroup); }

  // The products of tap number `done` are.
  __device__ __forceinline__ void release(int done, bool last_of_copy, int copy) {
    if (lane == 0 && last_of_copy) mbarrier_arrive(s.empty + copy);
    if constexpr (F::kStreams) {
      uint64_t* const empty = s.weights_empty + done % F::kStages;
      if (lane == 0) mbarrier_arrive(empty);
      const int next = done + F::kStages;
      if (group != 0 || thread != 0 || next >= share.taps()) return;
      mbarrier_wait(empty, done / F::kStages & 1);
      if (next % 9 == 0) loaded = loaded + kBlock == share.channels ? 0 : loaded + kBlock;
      load_tap<F>(s, maps.weights, share.filters, next, loaded);
    }
  }

  __device__ __forceinline__ void multiply_tap(Products& d, int shift, int row, bool first) {
    const int stage = F::kStreams ? n % F::kStages : shift * 3 + row;
    if (F::kStreams) mbarrier_wait(s.weights_full + stage, n / F::kStages & 1);
    constexpr bool kOuter = Result::kUses.transposed;
    const uint64_t a = wgmma_operand(s.weights[stage][F::kStreams ? group * kBlock : 0], 16, 1024),
                   b = wgmma_operand(s.copies[shift][row * F::Tile::kWide], 16, 1024);
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
    for (int block = 0; block < share.blocks(); ++block) {
      const int fill = i * share.blocks() + block;
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
  __device__ __forceinline__ void stage(Products& d, T* staged, int there) {
    using Tile = typename F::Tile;
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
        const int at = j * 4 + m * 2, image = (j + m / 2) * 8 % Tile::kWide / F::W;
        words[m] = results[m % 2].put(kRoundsFirst ? Vec<float, 2>{d[at], d[at + 1]} : rounded(d, at), words[m],
                                      Tile::kImages == 1 || image < there - lane % 4 * 2 / F::W);
      }
      stmatrix_trans(row + j * 8 * kBlock, words);
    }
  }

  // `before`: tiles of this consumer.
  __device__ __forceinline__ void finish(Products& d, int i, int before) {
    if (before == 0)
      for (int h = 0; h < 2; ++h) results[h].begin(__shfl_sync(kAllLanes, rounded(d, h * 2).x[0], lane & ~3));
    mbarrier_wait(s.out_ready + group, before & 1);
    auto* const staged = s.out[staging];
    const typename F::Tile tile = share.tile(i);
    stage(d, staged[0], tile.there);
    fence_async();
    bar_sync(1 + group, kGroup);
    if (thread != 0) return;
    for_each_box<typename F::Tile>([&](int row, int place) {
      store_box(&maps.out, staged[place], {share.channel(group), 0, tile.row + row, tile.image});
    });
    store_commit();
    store_wait_read<0>();
    prepare_out<F>(s, maps.beside, share, (F::kStreams && F::kStaging == 1 ? i * kConsumers + group : i) + 1, staging);
  }

  __device__ __forceinline__ void run(typename F::Part* parts) {
    constexpr int step = F::kStreams ? 1 : kConsumers;
    const int first = F::kStreams ? 0 : group;
    if (!F::kStreams && first < share.tiles) mbarrier_wait(s.weights_full, 0);
    Products d;
    int tiles = 0, images = 0;
    for (int i = first; i < share.tiles; i += step, ++tiles) {
      multiply(d, i);
      finish(d, i, tiles);
      images += share.tile(i).there;
    }
    if constexpr (!std::is_void_v<typename F::Part>) {
      const int number = F::kStreams ? share.first : share.first * kConsumers + group;
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const auto all = results[h].leave(images * (kPlaces / F::Tile::kImages));
        if (lane % 4 == 0) parts[number * share.channels + channel + h * 8] = all;
      }
    }
  }
};

#endif

template <class F>
__global__ void __launch_bounds__(kThreads, 1)
    wgmma_image_kernel(const __grid_constant__ Maps maps, const typename F::T* x, ImageNorm norm,
                       typename F::Part* parts, int images, int tiles, int channels) {
#if RT_HOPPER
  SHARED_DYN_ALIGNED(typename F::Shared, shared);
  typename F::Shared& s = *shared;
  const Share<F> share(images, tiles, channels);
  if (threadIdx.x == 0) begin<F>(s, maps, share);
  if constexpr (F::kNormalizes || F::Result::kUses.norm) place_norm(s.norm, norm, share.channels, 0);
  __syncthreads();
  if (threadIdx.x >= kConsumers * kGroup) load_tiles<F>(s, x, share);
  else Consumer<F>{s, maps, share}.run(parts);
#endif
}

// y = the convolution of x by w, beside the second image, which may be undefined if the Result does not read it.
template <class F>
ConvParts run_wgmma_image(const View& y, const View& x, const View& w, const View& beside, const NormOperand& norm) {
  using Part = typename F::Part;
  const int64_t images = y.dims[0], tiles = F::Tile::number(images), channels = y.dims[3],
                parts = channels / F::kFilters;
  const int64_t shares = std::clamp<int64_t>(properties(y.device.index).multiprocessors / parts, 1, tiles);
  ConvParts out{{}, F::kStreams ? shares : shares * kConsumers};
  if constexpr (!std::is_void_v<Part>)
    out.parts = Tensor({out.number * channels * int64_t(sizeof(Part))}, DType::u8, y.device);
  const Maps maps = {tensor_map(w.dtype, w.data, {channels, 3, 3, channels}, {kBlock, 1, 1, kBlock}),
                     tile_map<typename F::Tile>(y),
                     tile_map<typename F::Tile>(F::Result::kUses.second_image ? beside : y)};
  launch<wgmma_image_kernel<F>>(y.device, {dim3(unsigned(shares * parts)), dim3(kThreads), sizeof(typename F::Shared)},
                                maps, x.as<typename F::T>(),
                                ImageNorm{channels_of(norm.mean, norm.var, norm.w, norm.eps), View(norm.b).as<float>()},
                                static_cast<Part*>(View(out.parts).data), int(images), int(tiles), int(channels));
  return out;
}

// Calls f<ImageConv<type, width, filters, Result, normalizes>>(), where Result may depend on the type.
template <template <class> class Result, bool normalizes, class F> auto dispatch_image(const View& images, const F& f) {
  return dispatch_wgmma(images, [&]<class T, int W>() {
    if constexpr (W >= 16)
      if (images.dims[3] == kBlock) return f.template operator()<ImageConv<T, W, kBlock, Result<T>, normalizes>>();
    return f.template operator()<ImageConv<T, W, 2 * kBlock, Result<T>, normalizes>>();
  });
}

}  // namespace
}  // namespace ringtape::cuda
