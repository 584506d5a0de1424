#include "kernels/cuda/conv/wgmma_conv.cuh"

// The gradient of the weights. A block keeps that of 64 filters by 64 channels, of all nine taps, in the registers of
// three consumers, one for each column of the window. Both operands lie along their outer index: a row of the window
// further down is a row of the image further on, so that the three rows are one product of 192 columns. The last
// warpgroup loads x (wgmma_conv.cuh); dy comes by the copy engine. Each block leaves its sums in f32 at a place of its
// own.
namespace ringtape::cuda {
namespace {

constexpr int kPlaces = 128, kColumns = 3, kStages = 2, kThreads = (kColumns + 1) * kGroup;

template <class T_, int W_> struct WeightsConv {
  using T = T_;
  static constexpr int W = W_;
  using Tile = ConvTile<W, kPlaces>;

  struct Stage {
    T copies[3][Tile::kHalo * Tile::kWide][kBlock];
    T dy[kPlaces][kBlock];
  };
  struct Shared {
    Stage stages[kStages];
    float norm[3 * kBlock];  // of the block's channels
    uint64_t full[kStages], empty[kStages];
  };
  static_assert(sizeof(Shared) <= 227 * 1024);
};

#if RT_HOPPER

// What a block does: a part of the filters, of the channels, and of the tiles.
template <class F> struct Part {
  int images, all_channels, filters, channels, first, step, tiles;
  __device__ Part(int images, int tiles, int all_channels)
      : images(images), all_channels(all_channels), filters(int(blockIdx.x) % blocks() * kBlock),
        channels(int(blockIdx.x) / blocks() % blocks() * kBlock), first(int(blockIdx.x) / (blocks() * blocks())),
        step(int(gridDim.x) / (blocks() * blocks())), tiles((tiles - first + step - 1) / step) {}
  __device__ int blocks() const { return all_channels / kBlock; }
  __device__ typename F::Tile tile(int i) const { return {first + i * step, images}; }
};

template <class F, bool normalized>
__device__ __forceinline__ void load_tiles(typename F::Shared& s, const CUtensorMap& dy, const typename F::T* x,
                                           const Part<F>& part) {
  const int thread = int(threadIdx.x) % kGroup;
  HaloLoader<typename F::T, F::W, kPlaces> loader(thread);
  for (auto& stage : s.stages) loader.store_edges(stage.copies);
  if (part.tiles > 0) loader.load_halo(x, part.tile(0), part.all_channels, part.channels);
  for (int i = 0; i < part.tiles; ++i) {
    const typename F::Tile tile = part.tile(i);
    typename F::Stage& stage = s.stages[i % kStages];
    uint64_t* const full = s.full + i % kStages;
    if (i >= kStages) mbarrier_wait(s.empty + i % kStages, (i / kStages - 1) & 1);
    if (thread == 0) {
      mbarrier_expect(full, sizeof stage.dy);
      for_each_box<typename F::Tile>([&](int row, int place) {
        load_box(stage.dy[place], &dy, full, {part.filters, 0, tile.row + row, tile.image});
      });
    }
    if constexpr (normalized) loader.normalize(tile, s.norm, kBlock, 0);
#pragma unroll
    for (int shift = 0; shift < 3; ++shift) loader.store_copy(stage.copies[shift], shift);
    fence_async();
    __syncwarp();
    if (thread % 32 == 0) mbarrier_arrive(full);
    if (i + 1 < part.tiles)  // beside the products
      loader.load_halo(x, part.tile(i + 1), part.all_channels, part.channels);
  }
}

template <class F>
__device__ __forceinline__ void multiply_tiles(typename F::Shared& s, const Part<F>& part, float* to) {
  const int thread = int(threadIdx.x) % kGroup, lane = thread % 32, warp = thread / 32,
            column = int(threadIdx.x) / kGroup;
  constexpr int kSums = 96;  // of three taps
  float d[kSums] = {};
  for (int i = 0; i < part.tiles; ++i) {
    const typename F::Stage& stage = s.stages[i % kStages];
    mbarrier_wait(s.full + i % kStages, i / kStages & 1);
    const uint64_t a = wgmma_operand(stage.dy, 16, 1024),
                   b = wgmma_operand(stage.copies[column], F::Tile::kWide * kBlock * sizeof(typename F::T), 1024);
    keep(d);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < kPlaces / 16; ++k)
      wgmma<typename F::T, kSums, true, true>(d, wgmma_advance(a, k * 2048), wgmma_advance(b, k * 2048), true);
    wgmma_commit();
    if (i == 0) continue;
    wgmma_wait<1>();
    if (lane == 0) mbarrier_arrive(s.empty + (i - 1) % kStages);
  }
  wgmma_wait<0>();
  keep(d);
  const int c = part.all_channels;
  to += int64_t{part.first} * c * 9 * c + part.channels;
#pragma unroll
  for (int j = 0; j < 3 * kChunks; ++j)
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int filter = part.filters + warp * 16 + lane / 4 + h * 8, tap = j / kChunks * 3 + column;
      store(to + (filter * 9 + tap) * c + j % kChunks * 8 + lane % 4 * 2,
            Vec<float, 2>{d[j * 4 + h * 2], d[j * 4 + h * 2 + 1]});
    }
}

#endif

template <class F, bool normalized>
__global__ void __launch_bounds__(kThreads, 1)
    wgmma_weights_kernel(const __grid_constant__ CUtensorMap dy, const typename F::T* x, ImageNorm norm, float* parts,
                         int images, int tiles, int channels) {
#if RT_HOPPER
  SHARED_DYN_ALIGNED(typename F::Shared, shared);
  typename F::Shared& s = *shared;
  const Part<F> part(images, tiles, channels);
  if (threadIdx.x == 0) {
    for (uint64_t& b : s.full) mbarrier_init(&b, 5);
    for (uint64_t& b : s.empty) mbarrier_init(&b, 4 * kColumns);
    fence_mbarrier_init();
  }
  if constexpr (normalized) place_norm(s.norm, norm, kBlock, part.channels);
  __syncthreads();
  if (threadIdx.x >= kColumns * kGroup) load_tiles<F, normalized>(s, dy, x, part);
  else multiply_tiles<F>(s, part, parts);
#endif
}

template <class F> ConvParts weights(const View& dy, const NormOperand& x) {
  const int64_t images = dy.dims[0], channels = dy.dims[3], tiles = F::Tile::number(images),
                parts = (channels / kBlock) * (channels / kBlock);
  const int64_t number = std::clamp<int64_t>(properties(dy.device.index).multiprocessors / parts, 1, tiles);
  const ConvParts out{Tensor({number, channels * 9 * channels}, DType::f32, dy.device), number};
  const Grid grid{dim3(unsigned(number * parts)), dim3(kThreads), sizeof(typename F::Shared)};
  const auto run = [&]<bool normalized>() {
    launch<wgmma_weights_kernel<F, normalized>>(
        dy.device, grid, tile_map<typename F::Tile>(dy), View(x.raw).as<typename F::T>(),
        ImageNorm{channels_of(x.mean, x.var, x.w, x.eps), View(x.b).as<float>()}, View(out.parts).as<float>(),
        int(images), int(tiles), int(channels));
  };
  x.mean.defined() ? run.template operator()<true>() : run.template operator()<false>();
  return out;
}

}  // namespace

std::optional<ConvParts> wgmma_weights(const Shape& dw, View dy, const NormOperand& x, const Window& window) {
  const View raw(x.raw);
  if (aligned_width(kWgmmaPack, dy.as<bf16>(), raw.as<bf16>()) == 1 ||
      !wgmma_claims(dy.device.index, dy.dtype, raw.shape(), dw, window))
    return {};
  return dispatch_wgmma(dy, [&]<class T, int W>() { return weights<WeightsConv<T, W>>(dy, x); });
}

}  // namespace ringtape::cuda
