#pragma once
#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "core/tensor.h"
#include "kernels/cuda/block.cuh"
#include "kernels/cuda/vector.cuh"
#include "kernels/layout.h"

// Reductions over the axes along which y has size 1, of x of any strides. A reducer R is a small struct:
//   using C, Acc: the compute type; the accumulator of a set of elements, a number or a plain struct
//   static A identity<A>(), A combine(A a, A b): the accumulator of no elements; of two sets together (A is Acc)
//   static Acc of<N>(C (&x)[N]): the accumulator of N > 0 elements, which it may overwrite
//   void finish(int64_t output, Acc) const: writes the result
// If there are few outputs, the elements of each are split among blocks, and a second kernel combines their results.
// Which thread takes which element depends only on shape, strides and alignment. Outputs may be equal parts, one after
// the other, each of which is then reduced in the order that it has alone.
namespace ringtape::cuda {
namespace {

constexpr int kReduceThreads = 256;
constexpr int kReduceUnroll = 4;           // packs in flight per thread
constexpr int64_t kReduceBlocks = 2048;    // enough to keep any GPU busy
constexpr int64_t kReduceWarpPacks = 512;  // maximum for one output that one warp handles

// Several axes as one: maps an element's number to its offset from the first.
struct Axes {
  int rank;
  int64_t dims[kMaxRank], strides[kMaxRank];

  int64_t inner_stride() const { return std::abs(strides[rank - 1]); }
  RT_OUTLINED int64_t offset(int64_t i) const {
    int64_t at = 0;
#pragma unroll 1
    for (int d = rank - 1; d > 0; --d) {
      const int64_t q = quotient(i, dims[d]);
      at += (i - q * dims[d]) * strides[d];
      i = q;
    }
    return at + i * strides[0];
  }
  static __host__ __device__ int64_t quotient(int64_t a, int64_t b) {  // in 32 bits if possible: a tenth of the work
    return ((a | b) >> 32) == 0 ? int64_t(uint32_t(a) / uint32_t(b)) : a / b;
  }
};

struct ReduceShape {
  Axes outputs, reduced;
  int64_t n_out, n_reduced;
  int64_t chunk;      // reduced elements per block
  int64_t parts = 1;  // of the outputs
};

// Adds element e of the packs to accumulator e % kAccs: either one for all, or one per column.
template <class R, int kAccs, int kPacks, int kWidth, class T>
__device__ void add(typename R::Acc (&acc)[kAccs], const Vec<T, kWidth> (&packs)[kPacks]) {
  using Acc = typename R::Acc;
  constexpr int kEach = kPacks * kWidth / kAccs;
  const auto merge = [&](const auto& combine) {
#pragma unroll
    for (int a = 0; a < kAccs; ++a) {
      typename R::C v[kEach];
#pragma unroll
      for (int i = 0; i < kEach; ++i) v[i] = typename R::C(packs[(i * kAccs + a) / kWidth].x[(i * kAccs + a) % kWidth]);
      acc[a] = combine(acc[a], R::of(v));
    }
  };
  if constexpr (requires(Acc x, typename R::C c) { R::share(x, x), x.n = c; }) {  // all have as many numbers
    if (acc[0].n == 0) return merge([](const Acc&, const Acc& b) { return b; });
    const auto share = R::share(acc[0], {typename R::C(kEach), 0, 0});
    merge([share](const Acc& a, const Acc& b) { return R::combine(a, b, share); });
  } else {
    merge([](const Acc& a, const Acc& b) { return R::combine(a, b); });
  }
}

// Accumulates a thread's share of the reduced elements: kWidth from each of begin, begin + step ... below end.
template <class R, int kWidth, int kAccs, class T>
__device__ void gather(typename R::Acc (&acc)[kAccs], const T* x, const Axes& reduced, int64_t begin, int64_t end,
                       int64_t step) {
  int64_t i = begin;
  for (; i + (kReduceUnroll - 1) * step < end; i += kReduceUnroll * step) {
    Vec<T, kWidth> packs[kReduceUnroll];
#pragma unroll
    for (int u = 0; u < kReduceUnroll; ++u) packs[u] = load<kWidth>(x + reduced.offset(i + u * step));
    add<R>(acc, packs);
  }
  for (; i < end; i += step) {
    const Vec<T, kWidth> pack[1] = {load<kWidth>(x + reduced.offset(i))};
    add<R>(acc, pack);
  }
}

// Writes a partial result (outputs, splits) for the second kernel, or the final result if there is none.
template <class R>
__device__ void hand_over(const R& r, typename R::Acc* partial, int64_t output, const typename R::Acc& acc) {
  if (gridDim.y > 1) partial[output * gridDim.y + blockIdx.y] = acc;
  else r.finish(output, acc);
}

// For adjacent reduced elements: one team per output walks along them.
template <class R, class T, int kWidth>
__global__ void __launch_bounds__(kReduceThreads)
    reduce_rows(R r, const T* x, ReduceShape s, typename R::Acc* partial) {
  const int64_t output = int64_t(blockIdx.x) * blockDim.y + threadIdx.y;
  const bool exists = output < s.n_out;
  const int64_t first = blockIdx.y * s.chunk, end = exists ? min(first + s.chunk, s.n_reduced) : 0;
  typename R::Acc acc[1] = {R::template identity<typename R::Acc>()};
  gather<R, kWidth>(acc, x + (exists ? s.outputs.offset(output) : 0), s.reduced, first + int64_t(threadIdx.x) * kWidth,
                    end, int64_t(blockDim.x) * kWidth);
  acc[0] = team_reduce<R>(acc[0]);
  if (exists && threadIdx.x == 0) hand_over(r, partial, output, acc[0]);
}

// For adjacent outputs: a thread takes kWidth of them, and every blockDim.y-th reduced element of its block.
template <class R, class T, int kWidth>
__global__ void __launch_bounds__(kReduceThreads)
    reduce_columns(R r, const T* x, ReduceShape s, typename R::Acc* partial) {
  SHARED_ARRAY(typename R::Acc, tile, [kReduceThreads * kWidth]);
  const int columns = int(blockDim.x) * kWidth;
  const int64_t base = int64_t(blockIdx.x) * columns, output = base + int64_t(threadIdx.x) * kWidth;
  const int64_t first = blockIdx.y * s.chunk, end = output < s.n_out ? min(first + s.chunk, s.n_reduced) : 0;
  typename R::Acc acc[kWidth];
#pragma unroll
  for (int j = 0; j < kWidth; ++j) acc[j] = R::template identity<typename R::Acc>();
  gather<R, kWidth>(acc, x + (output < s.n_out ? s.outputs.offset(output) : 0), s.reduced, first + threadIdx.y, end,
                    blockDim.y);

  typename R::Acc* const own = tile + thread_in_block() * kWidth;
#pragma unroll
  for (int j = 0; j < kWidth; ++j) own[j] = acc[j];
  for (int half = int(blockDim.y) / 2; half > 0; half /= 2) {
    __syncthreads();
    if (int(threadIdx.y) < half)
      for (int j = 0; j < kWidth; ++j) own[j] = R::combine(own[j], own[j + half * columns]);
  }
  __syncthreads();
  for (int j = thread_in_block(); j < columns; j += kReduceThreads)
    if (base + j < s.n_out) hand_over(r, partial, base + j, tile[j]);
}

template <class R>
__global__ void __launch_bounds__(kReduceThreads)
    reduce_partial(R r, const typename R::Acc* partial, int64_t n_out, int64_t splits) {
  const int64_t output = int64_t(blockIdx.x) * blockDim.y + threadIdx.y;
  typename R::Acc acc = R::template identity<typename R::Acc>();
  if (output < n_out)
    for (int64_t i = threadIdx.x; i < splits; i += blockDim.x) acc = R::combine(acc, partial[output * splits + i]);
  acc = team_reduce<R>(acc);
  if (output < n_out && threadIdx.x == 0) r.finish(output, acc);
}

inline Axes axes_of(const View& x) {
  const Layout<1> layout = coalesce(std::array<View, 1>{x});
  Axes axes{layout.rank, {}, {}};
  std::copy_n(layout.dims, axes.rank, axes.dims);
  std::copy_n(layout.strides[0], axes.rank, axes.strides);
  return axes;
}

inline ReduceShape reduce_shape(const View& y, const View& x) {
  View kept = x, gone = x;
  kept.rank = gone.rank = 0;
  for (int d = 0; d < x.rank; ++d) {
    if (x.dims[d] == 1) continue;
    View& side = y.dims[d] == 1 ? gone : kept;
    // Reduced axes in memory order, the others in y's order.
    int at = side.rank++;
    for (; &side == &gone && at > 0 && std::abs(side.strides[at - 1]) < std::abs(x.strides[d]); --at)
      side.dims[at] = side.dims[at - 1], side.strides[at] = side.strides[at - 1];
    side.dims[at] = x.dims[d], side.strides[at] = x.strides[d];
  }
  return {axes_of(kept), axes_of(gone), kept.size(), gone.size(), gone.size()};
}

// The kernels of a reduction of elements of one type, `width` at a time, and the size of its accumulators.
struct ReduceKernels {
  Kernel rows, columns, combine;
  int width, acc_bytes;
};
template <class R, class T, int kWidth> ReduceKernels reduce_kernels() {
  return {launchable<reduce_rows<R, T, kWidth>>(), launchable<reduce_columns<R, T, kWidth>>(),
          launchable<reduce_partial<R>>(), kWidth, int(sizeof(typename R::Acc))};
}

// Below, `r` and `x` point to the kernels' first argument, the reducer, and to the first element.

// Combines partial (n_out, splits) to the results.
inline void launch_combine(Device device, const Kernel& combine, const void* r, const void* partial, int64_t n_out,
                           int64_t splits) {
  const int team = splits <= 4 * kWarp ? power_of_two(splits, kWarp) : kReduceThreads, teams = kReduceThreads / team;
  launch(combine, device, {dim3(unsigned(divide_up(n_out, teams))), dim3(unsigned(team), unsigned(teams))},
         {r, &partial, &n_out, &splits});
}

// Launches `kernel` for groups of `together` outputs. The reduced elements of each are split so that there are about
// kReduceBlocks blocks for a part, with at least `least` elements, a multiple of `unit`. Then launches the kernel that
// combines them.
inline void launch_split(Device device, const ReduceKernels& kernels, const Kernel& kernel, const void* r,
                         const void* x, ReduceShape s, int64_t together, dim3 threads, int64_t unit, int64_t least) {
  const int64_t of_a_part = divide_up(s.n_out / s.parts, together);
  const int64_t wanted = std::min(kReduceBlocks / std::max<int64_t>(of_a_part, 1), s.n_reduced / least);
  s.chunk = wanted > 1 ? divide_up(divide_up(s.n_reduced, wanted), unit) * unit : std::max<int64_t>(s.n_reduced, 1);
  const int64_t splits = std::max<int64_t>(divide_up(s.n_reduced, s.chunk), 1);
  const Grid grid{dim3(unsigned(divide_up(s.n_out, together)), unsigned(splits)), threads};
  const void* partial = nullptr;
  if (splits == 1) return launch(kernel, device, grid, {r, &x, &s, &partial});
  const Tensor scratch(Shape{s.n_out * splits * kernels.acc_bytes}, DType::u8, device);
  partial = View(scratch).data;
  launch(kernel, device, grid, {r, &x, &s, &partial});
  launch_combine(device, kernels.combine, r, partial, s.n_out, splits);
}

inline void reduce_by_rows(Device device, const ReduceKernels& kernels, const void* r, const void* x,
                           const ReduceShape& s) {
  const int64_t packs = s.n_reduced / kernels.width;
  const int team = packs > kReduceWarpPacks ? kReduceThreads : power_of_two(divide_up(packs, kReduceUnroll), kWarp);
  const int teams = kReduceThreads / team;
  const int64_t unit = kReduceThreads * kReduceUnroll * kernels.width;
  const dim3 threads{unsigned(team), unsigned(teams)};
  launch_split(device, kernels, kernels.rows, r, x, s, teams, threads, unit, 2 * unit);
}

// As many threads in x as a part has outputs; the others take more reduced elements of the same outputs.
inline void reduce_by_columns(Device device, const ReduceKernels& kernels, const void* r, const void* x,
                              const ReduceShape& s) {
  const int64_t packs = s.n_out / s.parts / kernels.width;
  int down = power_of_two(divide_up(s.n_reduced, kReduceUnroll), kReduceThreads / kWarp),
      across = kReduceThreads / down;
  for (; across / 2 >= packs; across /= 2) down *= 2;
  const int64_t unit = int64_t(down) * kReduceUnroll;
  const dim3 threads{unsigned(across), unsigned(down)};
  launch_split(device, kernels, kernels.columns, r, x, s, int64_t(across) * kernels.width, threads, unit, 4 * unit);
}

// Takes the wide kernels if x can be accessed so along the last axis of the inner loop.
inline void reduce_with(const ReduceKernels& wide, const ReduceKernels& narrow, const void* r, const View& y,
                        const View& x, int64_t parts) {
  ReduceShape s = reduce_shape(y, x);
  if (s.n_out == 0) return;
  s.parts = parts;
  const bool columns = s.n_out > 1 && (s.n_reduced == 1 || s.outputs.inner_stride() < s.reduced.inner_stride());
  const Axes &inner = columns ? s.outputs : s.reduced, &other = columns ? s.reduced : s.outputs;
  const int last = inner.rank - 1;
  bool fits = inner.strides[last] == 1 && inner.dims[last] % wide.width == 0 &&
              reinterpret_cast<uintptr_t>(x.data) % (size_of(x.dtype) * size_t(wide.width)) == 0;
  for (int d = 0; d < last; ++d) fits = fits && inner.strides[d] % wide.width == 0;
  for (int d = 0; d < other.rank; ++d) fits = fits && other.strides[d] % wide.width == 0;
  (columns ? reduce_by_columns : reduce_by_rows)(x.device, fits ? wide : narrow, r, x.data, s);
}

// Only the shape of y is used. T is the type of x's elements.
template <class T, class R> void reduce(const R& r, const View& y, const View& x, int64_t parts = 1) {
  constexpr int wide = sizeof(T) == 8 ? 1 : int(16 / sizeof(T));  // f64 is only for checks: one element at a time
  reduce_with(reduce_kernels<R, T, wide>(), reduce_kernels<R, T, 1>(), &r, y, x, parts);
}

}  // namespace
}  // namespace ringtape::cuda
