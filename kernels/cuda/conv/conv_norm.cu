#include "kernels/conv_norm.h"

#include "kernels/cuda/conv/conv_operands.cuh"
#include "kernels/cuda/conv/conv_sums.cuh"
#include "kernels/cuda/conv/wgmma_conv.h"
#include "kernels/cuda/reduce.cuh"

// One matrix product by tensor cores for each pass (gemm_mma.cuh). Raw tensors are normalised in shared memory, by the
// threads that copied them there; sums per channel are those of a tile of results, before it is written.
// BatchNorm's gradient is not applied on load but in a pass of its own: it needs two tensors, and a product that reads
// both nine times asks more of the second-level cache than the pass does.
namespace ringtape::cuda {
namespace {

// Images, as a NormOperand says.
template <class X> struct NormalizedImages : X {
  static constexpr int kValues = 3;
  ChannelsF by;
  const float* b;
  __device__ void values(int c, float* to, int step) const {
    const Normalize<float> n = Normalize<float>::of(by, b, c);
    to[0] = n.mean, to[step] = n.scale, to[2 * step] = n.shift;
  }
  template <class T, int N> __device__ void transform(Vec<T, N>& x, const float (&v)[kValues][N]) const {
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const float y = Normalize<float>{v[0][i], v[1][i], v[2][i]}(float(x.x[i]));
      x.x[i] = T(y < 0 ? 0 : y);
    }
  }
};
template <class X> NormalizedImages<X> normalized(const X& x, const NormOperand& by) {
  return {x, channels_of(by.mean, by.var, by.w, by.eps), View(by.b).as<float>()};
}

// Sums of a tile's rows go to parts (tiles, channels), for the kernel that combines them.
template <class R> struct Combined : R {
  using C = typename R::Acc;
  explicit Combined(const R& r) : R(r) {}
  template <int N> static __device__ C of(C (&x)[N]) { return pairwise<R>(x); }
};
template <class Part, class R>
void combine_parts(Device device, const R& r, const Part* parts, int64_t tiles, int64_t channels) {
  const ReduceShape shape{{1, {channels}, {1}}, {1, {tiles}, {channels}}, channels, tiles, tiles};
  using All = Combined<R>;
  const All all(r);
  const ReduceKernels kernels{{},
                              launchable<reduce_columns<All, Part, 1>>(),
                              launchable<reduce_partial<All>>(),
                              1,
                              int(sizeof(typename All::Acc))};
  reduce_by_columns(device, kernels, &all, parts, shape);
}
int64_t tiles_of(int64_t rows) { return divide_up(rows, kMmaRows); }

// Images with the moments of their channels.
template <class T> struct ColumnMoments {
  using Of = Moments<float>;
  using Acc = Of::Acc;
  static constexpr int kBytes = sizeof(Acc);
  Acc mine = {0, 0, 0};
  template <class Out> __device__ ColumnMoments(const Out&, int64_t, int) {}
  __device__ void add(const float* staged, int64_t, int rows, int lane) {
    if (rows == 16) {
      float v[16];
#pragma unroll
      for (int r = 0; r < 16; ++r) v[r] = float(T(staged[r * kStagedRow + lane]));
      mine = Of::combine(mine, Of::of(v));
    } else
      for (int r = 0; r < rows; ++r) mine = Of::combine(mine, {1, float(T(staged[r * kStagedRow + lane])), 0});
  }
  __device__ void leave(Acc* to, int lane) const { to[lane] = mine; }
  static __device__ Acc combine(const Acc& a, const Acc& b) { return Of::combine(a, b); }
};
template <class T> struct ImagesWithMoments : ImageResult<T> {
  using Sums = ColumnMoments<T>;
  MomentsPart* parts;
  __device__ void put_pack(int64_t, int64_t q, int64_t place, int64_t k, const float* sums, Sums&) const {
    NoSums none(*this, 0, 0);
    ImageResult<T>::put_pack(0, q, place, k, sums, none);
  }
  __device__ void put_sums(int64_t tile, int64_t channel, const Moments<float>::Acc& sums) const {
    parts[tile * this->channels + channel] = {sums};
  }
};

// dz of normalised images, with the gradients of their b and w.
struct AddGradientSums {
  using Acc = GradientSums;
  template <class A> static __device__ A identity() { return {0, 0}; }
  static __device__ Acc combine(const Acc& a, const Acc& b) { return {a.db + b.db, a.dw + b.dw}; }
};
struct FinishGradientSums : AddGradientSums {
  float *db, *dw;
  ChannelsF by;
  FinishGradientSums(const View& b, const View& w, const ChannelsF& channels)
      : db(b.as<float>()), dw(w.as<float>()), by(channels) {}
  __device__ void finish(int64_t c, const Acc& sums) const { db[c] = sums.db, dw[c] = sums.dw * by.inverse(c); }
};
template <class T> struct PackSums {  // of the channels of a thread
  using Acc = GradientSums;
  static constexpr int kBytes = sizeof(Acc), kPack = kPackOf<T>, kLanes = kWarpColumns / kPack;
  Normalize<float> of[kPack];
  Acc mine[kPack];
  template <class Out> __device__ PackSums(const Out& out, int64_t column, int lane) {
    const int64_t channel = column + lane % kLanes * kPack;
#pragma unroll
    for (int i = 0; i < kPack; ++i) {
      mine[i] = {0, 0};
      if (channel < out.channels) of[i] = Normalize<float>::of(out.by, out.shift, channel + i);
    }
  }
  __device__ void add(const float*, int64_t, int, int) {}
  __device__ void leave(Acc* to, int lane) {
    for (int i = 0; i < kPack; ++i) {
      for (int mask = kLanes; mask < 32; mask *= 2)
        mine[i] = AddGradientSums::combine(mine[i], shuffle_xor(mine[i], mask));
      if (lane < kLanes) to[lane * kPack + i] = mine[i];
    }
  }
  static __device__ Acc combine(const Acc& a, const Acc& b) { return AddGradientSums::combine(a, b); }
};
template <class T> struct GatedImages {
  using Element = T;
  using Sums = PackSums<T>;
  static constexpr int kPack = kPackOf<T>;
  T* dz;
  const T* raw;
  int64_t channels;
  ChannelsF by;
  const float* shift;
  GradientSums* parts;
  ConvSizes z;
  Phases phases = Phases(z, 0);
  __device__ void start(int64_t b) { phases = Phases(z, b); }
  bool aligned() const { return aligned_width(kPack, dz, raw) == kPack; }
  __device__ bool packed() const { return true; }
  __device__ void put(int64_t, int64_t, int64_t, int64_t, float) const {}
  __device__ void put_pack(int64_t, int64_t, int64_t number, int64_t k, const float* sums, Sums& its) const {
    const int64_t place = phases.place(z, number);
    const Vec<T, kPack> x = load<kPack>(raw + place * channels + k);
    Vec<T, kPack> out;
#pragma unroll
    for (int i = 0; i < kPack; ++i) {
      out.x[i] = T(its.of[i](float(x.x[i])) > 0 ? sums[i] : 0);
      its.mine[i].db += float(out.x[i]);
      its.mine[i].dw += float(out.x[i]) * (float(x.x[i]) - its.of[i].mean);
    }
    store(dz + place * channels + k, out);
  }
  __device__ void put_sums(int64_t tile, int64_t channel, const GradientSums& sums) const {
    parts[tile * channels + channel] = sums;
  }
};

// Images + others, which may be null.
template <class T> struct SkippedImages {
  using Element = T;
  using Sums = NoSums;
  static constexpr int kPack = kPackOf<T>;
  T* y;
  const T* skip;
  int64_t channels;
  ConvSizes z;
  Phases phases = Phases(z, 0);
  __device__ void start(int64_t b) { phases = Phases(z, b); }
  bool aligned() const { return aligned_width(kPack, y, skip) == kPack; }
  __device__ bool packed() const { return true; }
  __device__ void put(int64_t, int64_t, int64_t, int64_t, float) const {}
  __device__ void put_pack(int64_t, int64_t, int64_t number, int64_t k, const float* sums, NoSums&) const {
    const int64_t place = phases.place(z, number);
    Vec<T, kPack> out, added{};
    if (skip) added = load<kPack>(skip + place * channels + k);
#pragma unroll
    for (int i = 0; i < kPack; ++i) out.x[i] = T(skip ? float(T(sums[i])) + float(added.x[i]) : sums[i]);
    store(y + place * channels + k, out);
  }
};

template <class F> bool dispatch_fused(DType dtype, const F& f) {
  switch (dtype) {
    case DType::bf16: return f.template operator()<bf16>();
    case DType::f16: return f.template operator()<f16>();
    default: return f.template operator()<float>();  // as TF32
  }
}

static_assert(kFusedChannels % kMaxMmaDepth == 0);
bool fits(const ConvSizes& z) { return z.groups() == 1 && z.places() > 0 && z.steps_of_a_tap<bf16>(z.c | z.k); }

// Calls f(operand) for the patches of x.
template <class T, bool swapped, class F> bool with_patches(const NormOperand& x, const ConvSizes& z, const F& f) {
  const auto patches = by_tap(Patches<T, swapped>{View(x.raw).as<T>(), z});
  return x.mean.defined() ? f(normalized(patches, x)) : f(patches);
}

}  // namespace

bool can_fuse(int gpu, int64_t channels) {
  using Images = NormalizedImages<Patches<bf16, false>>;
  using Stage = MmaStage<bf16, MmaTile<kMmaRows, kMmaColumns>, Images, Weights<bf16>>;  // as large as the others
  const int64_t bytes =
      kMmaStages * Stage::kElements * int64_t(sizeof(bf16)) + Images::kValues * channels * int64_t(sizeof(float));
  return properties(gpu).major >= 8 && bytes <= properties(gpu).shared_bytes_per_block;
}

bool fused_forward(View y, View mean, View var, const NormOperand& x, View w, const Window& window,
                   const RunningUpdate& running, bool wgmma) {
  if (wgmma)
    if (const auto left = wgmma_forward(y, x, w, window)) {
      combine_parts(y.device, Statistics<float>(mean, var, running),
                    static_cast<const MomentsPart*>(View(left->parts).data), left->number, y.dims[3]);
      return true;
    }
  const ConvSizes z(y, x.raw, w, window);
  if (!fits(z)) return false;
  return dispatch_fused(y.dtype, [&]<class T>() {
    const int64_t tiles = tiles_of(z.places());
    const Tensor parts({tiles * z.k * int64_t(sizeof(MomentsPart))}, DType::u8, y.device);
    MomentsPart* const part = static_cast<MomentsPart*>(View(parts).data);
    const ImagesWithMoments<T> out{{y.as<T>(), nullptr, z.k, z.k}, part};
    const bool done = with_patches<T, false>(x, z, [&](const auto& patches) {
      return gemm_mma<T>(y.device, patches, Weights<T>{w.as<T>(), z}, out, {1, z.places(), z.k, z.taps() * z.c});
    });
    if (done) combine_parts(y.device, Statistics<float>(mean, var, running), part, tiles, z.k);
    return done;
  });
}

// dx, the gradient before the ReLU of x's normalisation, becomes that of x.
static void through_norm(const View& dx, const View& db, const View& dw, const NormOperand& x,
                         const GradientSums* parts, int64_t number) {
  const int64_t c = dx.dims[3];
  combine_parts(dx.device, FinishGradientSums(db, dw, channels_of(x.mean, x.var, x.w, x.eps)), parts, number, c);
  batch_norm_backward(dx, {}, dx, {}, x.raw, x.mean, x.var, x.w, db, dw, dx.size() / c, x.eps);
}

bool fused_backward_data(View dx, View db, View dw, View dy, View w, const NormOperand& x, View skip,
                         const Window& window, bool wgmma) {
  if (wgmma)
    if (const auto left = wgmma_data(dx, dy, w, x, skip, window)) {
      if (x.mean.defined())
        through_norm(dx, db, dw, x, static_cast<const GradientSums*>(View(left->parts).data), left->number);
      return true;
    }
  const ConvSizes z(dy, dx, w, window);
  if (!fits(z)) return false;
  return dispatch_fused(dx.dtype, [&]<class T>() {
    const auto patches = by_tap(BackwardPatches<T>{dy.as<T>(), z});
    const auto weights = by_tap(TransposedWeights<T>{w.as<T>(), z});
    const Product p = Phases::sizes(z);
    if (!x.mean.defined())
      return gemm_mma<T>(dx.device, patches, weights, SkippedImages<T>{dx.as<T>(), skip.as<T>(), z.c, z}, p);
    const int64_t tiles = p.batch * tiles_of(p.m);
    const Tensor parts({tiles * z.c * int64_t(sizeof(GradientSums))}, DType::u8, dx.device);
    GradientSums* const part = static_cast<GradientSums*>(View(parts).data);
    const ChannelsF channels = channels_of(x.mean, x.var, x.w, x.eps);
    const GatedImages<T> out{dx.as<T>(), View(x.raw).as<T>(), z.c, channels, View(x.b).as<float>(), part, z};
    if (!gemm_mma<T>(dx.device, patches, weights, out, p)) return false;
    through_norm(dx, db, dw, x, part, tiles);
    return true;
  });
}

bool fused_backward_weights(View dw, View dy, const NormOperand& x, const Window& window, bool wgmma) {
  if (wgmma)
    if (const auto left = wgmma_weights(dw.shape(), dy, x, window))
      return dispatch_fused(dy.dtype, [&]<class T>() {
        add_parts<T>(dw, View(left->parts).as<float>(), left->number);
        return true;
      });
  const ConvSizes z(dy, x.raw, dw, window);
  if (!fits(z)) return false;
  return dispatch_fused(dy.dtype, [&]<class T>() {
    const OutputGradient<T> gradient{dy.as<T>(), z};
    return with_patches<T, true>(x, z, [&](const auto& patches) {
      return weight_gradient<T>(
          dw, z, [&](const auto& out, const Product& p) { return gemm_mma<T>(dw.device, gradient, patches, out, p); });
    });
  });
}

}  // namespace ringtape::cuda
