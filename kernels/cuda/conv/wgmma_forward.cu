#include "kernels/conv2d.h"
#include "kernels/cuda/conv/wgmma_conv.cuh"
#include "kernels/cuda/conv/wgmma_conv.h"
#include "kernels/cuda/hopper/tensor_map.h"

// y = the convolution of a normalised image, with the moments of y. A block for each multiprocessor; the last warpgroup
// loads (wgmma_conv.cuh), two consumers multiply: the filters are the rows of the products, the places their columns,
// so that a channel's moments are sums of registers over the whole life of a block.
//   64 channels    the weights of all taps stay in shared memory; the consumers take the tiles in turn
//   128 channels   each consumer has 64 of the filters of every tile; the weights come tap by tap, by the copy engine
namespace ringtape::cuda {
namespace {

constexpr int kPlaces = 256, kConsumers = 2, kThreads = (kConsumers + 1) * kGroup;

template <class T_, int W_, int C_> struct ForwardConv {
  using T = T_;
  static constexpr int W = W_, C = C_, kBlocks = C / kBlock;
  using Tile = ConvTile<W, kPlaces>;
  static constexpr bool kStreams = kBlocks > 1;
  static constexpr int kStages = !kStreams ? 9 : W > 16 ? 2 : 3;  // taps of the weights in shared memory
  static constexpr int kStaging = kStreams ? kConsumers : 1;

  struct Shared {
    T weights[kStages][C][kBlock];
    T copies[3][Tile::kHalo * W][kBlock];
    T out[kStaging][kPlaces][kBlock];
    float norm[3 * C];
    uint64_t weights_full[kStages], weights_empty[kStages];  // those that stay have the first alone
    uint64_t full[3], empty[3], out_free[kStaging];          // by copy
  };
  static_assert(sizeof(Shared) <= 227 * 1024);
};

#if RT_HOPPER

struct Share {  // of a block
  int tiles;
  __device__ explicit Share(int all) : tiles((all - int(blockIdx.x) + int(gridDim.x) - 1) / int(gridDim.x)) {}
  __device__ int tile(int i) const { return int(blockIdx.x) + i * int(gridDim.x); }
};

template <class F> __device__ void begin(typename F::Shared& s) {
  for (uint64_t& b : s.weights_full) mbarrier_init(&b, 1);
  for (uint64_t& b : s.weights_empty) mbarrier_init(&b, 4 * kConsumers);
  for (uint64_t& b : s.full) mbarrier_init(&b, 4);
  for (uint64_t& b : s.empty) mbarrier_init(&b, F::kStreams ? 4 * kConsumers : 4);
  for (uint64_t& b : s.out_free) mbarrier_init(&b, 1);
  fence_mbarrier_init();
}

// Tap number n of those that the block multiplies, in the order of the consumers: columns of the window first.
template <class F> __device__ __forceinline__ void load_tap(typename F::Shared& s, const CUtensorMap& map, int n) {
  uint64_t* const full = s.weights_full + (F::kStreams ? n % F::kStages : 0);
  const int tap = n % 9, block = n / 9 % F::kBlocks;
  if (F::kStreams) mbarrier_expect(full, sizeof s.weights[0]);
  load_box(s.weights[n % F::kStages], &map, full, {block * kBlock, tap / 3, tap % 3, 0});
}

template <class F, bool normalized>
__device__ __forceinline__ void load_tiles(typename F::Shared& s, const typename F::T* x, const Share& share) {
  const int thread = int(threadIdx.x) % kGroup;
  HaloLoader<typename F::T, F::W, kPlaces> loader(thread);
  loader.store_edges(s.copies[0], s.copies[2]);
  for (int fill = 0; fill < share.tiles * F::kBlocks; ++fill) {
    const typename F::Tile tile(share.tile(fill / F::kBlocks));
    const int first = fill % F::kBlocks * kBlock;
    loader.load_halo(x, tile, F::C, first);
    if constexpr (normalized) loader.normalize(tile, s.norm, F::C, first);
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

// Of a channel, over the tiles of a consumer: around the first value, so that little is lost by differences.
struct RunningMoments {
  float pivot, sum = 0, squares = 0;
  __device__ __forceinline__ void add(float x) {
    const float d = x - pivot;
    sum += d, squares += d * d;
  }
  __device__ Moments<float>::Acc finish(float count) const {  // of the four lanes with this channel
    const float all = warp_reduce<Sum>(sum, 4), all_squares = warp_reduce<Sum>(squares, 4), mean = all / count;
    if (count == 0) return {0, 0, 0};
    const float rest = all_squares - all * mean;
    return {count, pivot + mean, rest < 0 ? 0 : rest};
  }
};

template <class F> struct Consumer {
  using T = typename F::T;
  typename F::Shared& s;
  const CUtensorMap &weights, &out;
  const Share share;
  const int thread = int(threadIdx.x) % kGroup, lane = thread % 32, warp = thread / 32,
            group = int(threadIdx.x) / kGroup;
  RunningMoments moments[2] = {};  // of channels lane / 4 and 8 further on
  int n = 0;                       // taps, of weights that are streamed

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
      load_tap<F>(s, weights, next);
    }
  }

  __device__ __forceinline__ void multiply_tap(float (&d)[kPlaces / 2], int shift, int row, bool first) {
    const int stage = F::kStreams ? n % F::kStages : shift * 3 + row;
    if (F::kStreams) mbarrier_wait(s.weights_full + stage, n / F::kStages & 1);
    const uint64_t a = wgmma_operand(s.weights[stage][F::kStreams ? group * kBlock : 0], 16, 1024),
                   b = wgmma_operand(s.copies[shift][row * F::W], 16, 1024);
    keep(d);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < 4; ++k) wgmma<T>(d, wgmma_advance(a, k * 32), wgmma_advance(b, k * 32), !(first && k == 0));
    wgmma_commit();
    ++n;
  }

  __device__ __forceinline__ void multiply(float (&d)[kPlaces / 2], int i) {
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

  __device__ __forceinline__ void finish(float (&d)[kPlaces / 2], int i, bool first) {
    const typename F::Tile tile(share.tile(i));
    T* const staged = s.out[F::kStreams ? group : 0][0];
    if (first)
      for (int h = 0; h < 2; ++h) moments[h].pivot = __shfl_sync(kAllLanes, float(T(d[h * 2])), lane & ~3);
    uint64_t* const out_free = s.out_free + (F::kStreams ? group : 0);
    if (i > 0) mbarrier_wait(out_free, (i - 1) & 1);  // the tile before has been read from there
    T* const row = staged + swizzled(lane / 16 * 8 + lane % 8, warp * 2 + lane / 8 % 2);
#pragma unroll
    for (int j = 0; j < kPlaces / 8; j += 2) {
      uint32_t packs[4];
#pragma unroll
      for (int m = 0; m < 4; ++m) {
        packs[m] = pack<T>(d[j * 4 + m * 2], d[j * 4 + m * 2 + 1]);
        const Vec<float, 2> rounded = unpack<T>(packs[m]);
        moments[m % 2].add(rounded.x[0]), moments[m % 2].add(rounded.x[1]);
      }
      stmatrix_trans(row + j * 8 * kBlock, packs);
    }
    fence_async();
    bar_sync(1 + group, kGroup);
    if (thread != 0) return;
    store_box(&out, staged, {F::kStreams ? group * kBlock : 0, 0, tile.row, tile.image});
    store_commit();
    store_wait_read<0>();
    mbarrier_arrive(out_free);
  }

  __device__ __forceinline__ void run(MomentsPart* parts) {
    constexpr int step = F::kStreams ? 1 : kConsumers;
    const int begin = F::kStreams ? 0 : group;
    if (!F::kStreams && begin < share.tiles) mbarrier_wait(s.weights_full, 0);
    float d[kPlaces / 2];
    for (int i = begin; i < share.tiles; i += step) {
      multiply(d, i);
      finish(d, i, i == begin);
    }
    const int tiles = share.tiles > begin ? (share.tiles - begin + step - 1) / step : 0;
    MomentsPart* const mine = parts + (F::kStreams ? int(blockIdx.x) * F::C + group * kBlock
                                                   : (int(blockIdx.x) * kConsumers + group) * kBlock);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const Moments<float>::Acc all = moments[h].finish(float(tiles * kPlaces));
      if (lane % 4 == 0) mine[warp * 16 + lane / 4 + h * 8] = {all};
    }
  }
};

#endif

template <class F, bool normalized>
__global__ void __launch_bounds__(kThreads, 1)
    wgmma_forward_kernel(const __grid_constant__ CUtensorMap weights, const __grid_constant__ CUtensorMap out,
                         const typename F::T* x, ImageNorm norm, MomentsPart* parts, int tiles) {
#if RT_HOPPER
  SHARED_DYN_ALIGNED(typename F::Shared, shared);
  typename F::Shared& s = *shared;
  const Share share(tiles);
  if (threadIdx.x == 0) {
    begin<F>(s);
    if (!F::kStreams) mbarrier_expect(s.weights_full, sizeof s.weights);
    const int all = share.tiles * F::kBlocks * 9;
    for (int n = 0; n < F::kStages && n < all; ++n) load_tap<F>(s, weights, n);
  }
  if constexpr (normalized) place_norm(s.norm, norm, F::C);
  __syncthreads();
  if (threadIdx.x >= kConsumers * kGroup) load_tiles<F, normalized>(s, x, share);
  else Consumer<F>{s, weights, out, share}.run(parts);
#endif
}

template <class F> ConvParts forward(const View& y, const NormOperand& x, const View& w) {
  const int64_t images = y.dims[0], tiles = images * F::Tile::kOfImage;
  const int blocks = int(std::min<int64_t>(tiles, properties(y.device.index).multiprocessors));
  ConvParts out{{}, F::kStreams ? blocks : blocks * kConsumers};
  out.parts = Tensor({out.number * F::C * int64_t(sizeof(MomentsPart))}, DType::u8, y.device);
  const CUtensorMap weights = tensor_map(w.dtype, w.data, {F::C, 3, 3, F::C}, {kBlock, 1, 1, F::C}),
                    map = tensor_map(y.dtype, y.data, {F::C, F::W, F::W, images}, {kBlock, F::W, F::Tile::kRows, 1});
  const Grid grid{dim3(unsigned(blocks)), dim3(kThreads), sizeof(typename F::Shared)};
  auto* const parts = static_cast<MomentsPart*>(View(out.parts).data);
  const auto run = [&]<bool normalized>() {
    launch<wgmma_forward_kernel<F, normalized>>(
        y.device, grid, weights, map, View(x.raw).as<typename F::T>(),
        ImageNorm{channels_of(x.mean, x.var, x.w, x.eps), View(x.b).as<float>()}, parts, int(tiles));
  };
  x.mean.defined() ? run.template operator()<true>() : run.template operator()<false>();
  return out;
}

}  // namespace

std::optional<ConvParts> wgmma_forward(View y, const NormOperand& x, View w, const Window& window) {
  const View raw(x.raw);
  if (aligned_width(kWgmmaPack, y.as<bf16>(), raw.as<bf16>(), w.as<bf16>()) == 1 ||
      !wgmma_claims(y.device.index, y.dtype, raw.shape(), w.shape(), window))
    return {};
  return dispatch_wgmma(y, [&]<class T, int W, int C>() { return forward<ForwardConv<T, W, C>>(y, x, w); });
}

}  // namespace ringtape::cuda
