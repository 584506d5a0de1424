#include "kernels/batch_norm.h"

#include <type_traits>

#include "kernels/cuda/norm_channels.cuh"
#include "kernels/cuda/reduce.cuh"

namespace ringtape::cuda {
namespace {

// Contiguous x (..., C) as parts of `rows` rows.
View matrices(const View& x, int64_t parts, int64_t rows) {
  View m = x;
  const int64_t channels = x.dims[x.rank - 1];
  m.rank = 3;
  m.dims[0] = parts, m.dims[1] = rows, m.dims[2] = channels;
  m.strides[0] = rows * channels, m.strides[1] = channels, m.strides[2] = 1;
  return m;
}

template <class C>
__global__ void merge_statistics(C* mean, C* var, C* unbiased, C* count, const double* parts, int64_t n,
                                 int64_t channels) {
  using Sums = Moments<double>;
  for (int64_t c = thread_in_grid(); c < channels; c += threads_in_grid()) {
    Sums::Acc all{0, 0, 0};
    for (int64_t p = 0; p < n; ++p) {
      const double* const part = parts + p * (2 * channels + 1);
      const double rows = part[2 * channels];
      all = Sums::combine(all, {rows, part[c], part[channels + c] * rows});
    }
    mean[c] = C(all.mean);
    var[c] = all.n > 0 ? C(all.squares / all.n) : C(0);
    unbiased[c] = C(all.squares / (all.n - 1));
    if (c == 0) *count = C(all.n);
  }
}

// By the mean of several parts.
template <class C>
__global__ void update_running(Running<C> running, const C* mean, const C* var, int64_t channels, int64_t parts) {
  const auto over_parts = [=](const C* each, int64_t c) {
    C sum = each[c];
    for (int64_t p = 1; p < parts; ++p) sum += each[p * channels + c];
    return sum / C(parts);
  };
  for (int64_t c = thread_in_grid(); c < channels; c += threads_in_grid())
    running.add(c, over_parts(mean, c), over_parts(var, c));
}

}  // namespace

void batch_norm_statistics(View mean, View var, View x, RunningUpdate running) {
  const int64_t channels = x.dims[x.rank - 1], parts = batch_norm_parts(mean, x);
  if (channels == 0) return;
  const View rows = matrices(x, parts, x.size() / channels / parts);
  const RunningUpdate at_once = parts == 1 ? running : RunningUpdate{};
  dispatch_float(x.dtype,
                 [&]<class T>() { reduce<T>(Statistics<T>(mean, var, at_once), matrices(x, parts, 1), rows, parts); });
  if (parts > 1 && running.mean.data) batch_norm_running(mean, var, running);
}

void batch_norm_merge(View mean, View var, View unbiased, View count, View parts) {
  const int64_t channels = mean.dims[0];
  if (channels == 0) return;
  dispatch_float(mean.dtype, [&]<class T>() {
    using C = compute_t<T>;
    launch<merge_statistics<C>>(mean.device, covering(mean.device, channels), mean.as<C>(), var.as<C>(),
                                unbiased.as<C>(), count.as<C>(), parts.as<double>(), parts.dims[0], channels);
  });
}

void batch_norm_running(View mean, View var, RunningUpdate running) {
  const int64_t channels = running.mean.dims[0];
  dispatch_float(mean.dtype, [&]<class T>() {
    using C = compute_t<T>;
    launch<update_running<C>>(mean.device, covering(mean.device, channels), Running<C>(running), mean.as<const C>(),
                              var.as<const C>(), channels, mean.size() / std::max<int64_t>(channels, 1));
  });
}

namespace {

// A thread handles kPack neighbouring elements (one byte of the mask) of rows at a fixed distance, so that the values
// of its channels stay in registers. A row here is the smallest number of rows of channels that is a whole number of
// packs; the last one may be shorter. Each part of x has the blocks of one z, as many as it would have alone.
constexpr int kPack = 8, kThreads = 256;

struct Rows {
  int64_t channels, n, size, parts;  // size: the elements of a part

  Rows(const View& x, const View& mean)
      : channels(x.dims[x.rank - 1]), n(channels), size(x.size()), parts(batch_norm_parts(mean, x)) {
    constexpr int64_t kMostParts = 65535;  // blocks in z
    RT_CHECK_AS(UsageError, parts <= kMostParts, "batch_norm: expected at most ", kMostParts, " parts, got ", parts);
    while (n % kPack != 0) n *= 2;
    size /= parts;
  }
  int64_t count() const { return divide_up(size, n); }
  __host__ __device__ int64_t in_a_row() const { return Axes::quotient(n, channels); }
  // At most `most` blocks, with at least `least` rows per thread.
  Grid grid(int64_t most, int64_t least) const {
    const int across = power_of_two(n / kPack, kThreads), down = kThreads / across;
    const int64_t groups = divide_up(n / kPack, across),
                  splits = std::min(most / groups, divide_up(count(), down * least));
    return {dim3(unsigned(groups), unsigned(std::max<int64_t>(splits, 1)), unsigned(parts)),
            dim3(unsigned(across), unsigned(down))};
  }
  __device__ int64_t begin() const { return blockIdx.z * size; }              // of the block's part
  __device__ int64_t first_channel() const { return blockIdx.z * channels; }  // in values (P, C)
  __device__ int64_t column() const { return (int64_t(blockIdx.x) * blockDim.x + threadIdx.x) * kPack; }
  // Calls f(element of the pack, its channel, how many times all channels are before it in the row).
  template <class F> __device__ void for_each_channel(const F& f) const {
    int64_t before = Axes::quotient(column(), channels), c = column() - before * channels;
#pragma unroll
    for (int j = 0; j < kPack; ++j) {
      f(j, c, before);
      if (++c == channels) c = 0, ++before;
    }
  }
  // Calls f(first element, its byte of the mask, elements) for the packs of this thread; for all whole ones `elements`
  // is a constant.
  template <class F> __device__ void for_each_pack(const F& f) const {
    if (column() >= n) return;
    const int64_t first = int64_t(blockIdx.y) * blockDim.y + threadIdx.y, step = int64_t(gridDim.y) * blockDim.y * n;
    const int64_t from = begin(), mask = blockIdx.z * batch_norm_mask_bytes(size);
    int64_t at = first * n + column();
    for (; at + kPack <= size; at += step) f(from + at, mask + at / kPack, std::integral_constant<int, kPack>{});
    if (at < size) f(from + at, mask + at / kPack, int(size - at));
  }
};

template <class T> constexpr int kWidest = sizeof(T) == 8 ? 1 : int(16 / sizeof(T));

// A pack as it is in memory. Kernels load those of all operands before they convert one: the loads wait together.
template <class T, int kWidth> struct Pack {
  Vec<T, kWidth> parts[kPack / kWidth];

  __device__ Pack(const T* from, int count) {
    if (count == kPack) {
#pragma unroll
      for (int i = 0; i < kPack / kWidth; ++i) parts[i] = load<kWidth>(from + i * kWidth);
    } else {
#pragma unroll
      for (int j = 0; j < kPack; ++j) parts[j / kWidth].x[j % kWidth] = j < count ? from[j] : T(compute_t<T>(0));
    }
  }
  __device__ compute_t<T> operator[](int j) const { return compute_t<T>(parts[j / kWidth].x[j % kWidth]); }
};

template <int kWidth, class T, class C> __device__ void write(T* to, const C (&x)[kPack], int count) {
  if (count == kPack) {
#pragma unroll
    for (int i = 0; i < kPack; i += kWidth) {
      Vec<T, kWidth> v;
#pragma unroll
      for (int j = 0; j < kWidth; ++j) v.x[j] = T(x[i + j]);
      store(to + i, v);
    }
  } else {
#pragma unroll
    for (int j = 0; j < kPack; ++j)
      if (j < count) to[j] = T(x[j]);
  }
}

template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads)
    batch_norm_apply(T* y, uint8_t* mask, const T* x, const T* residual, Channels<compute_t<T>> channels,
                     const compute_t<T>* b, bool relu, Rows rows) {
  using C = compute_t<T>;
  Normalize<C> normalize[kPack];
  const Channels<C> own = channels.from(rows.first_channel());
  rows.for_each_channel([&](int j, int64_t c, int64_t) { normalize[j] = Normalize<C>::of(own, b, c); });
  rows.for_each_pack([&](int64_t at, int64_t byte, auto count) {
    const Pack<T, kWidth> of_x(x + at, count), added(residual ? residual + at : nullptr, residual ? count : 0);
    C v[kPack];
    unsigned above = 0;
#pragma unroll
    for (int j = 0; j < kPack; ++j) {
      v[j] = normalize[j](of_x[j]) + added[j];
      above |= unsigned(v[j] > 0 && j < count) << j;
      if (relu && v[j] < 0) v[j] = 0;
    }
    write<kWidth>(y + at, v, count);
    if (mask) mask[byte] = uint8_t(above);
  });
}

// Calls f<kWidth>() with the widest access that all parts of all operands allow; operands may be null.
template <class T, class F, class... X> void by_width(const Rows& rows, const F& f, const X*... x) {
  const bool wide = aligned_width(kWidest<T>, x...) == kWidest<T> && (rows.parts == 1 || rows.size % kWidest<T> == 0);
  wide ? f.template operator()<kWidest<T>>() : f.template operator()<1>();
}

int64_t most_blocks(Device device) { return covering(device, INT32_MAX, kThreads).blocks.x; }

}  // namespace

void batch_norm_forward(View y, View mask, View x, View residual, View mean, View var, View w, View b, double eps,
                        Activation f) {
  if (x.size() == 0) return;
  const Rows rows(x, mean);
  dispatch_float(x.dtype, [&]<class T>() {
    using C = compute_t<T>;
    by_width<T>(
        rows,
        [&]<int kWidth>() {
          launch<batch_norm_apply<T, kWidth>>(x.device, rows.grid(most_blocks(x.device), 1), y.as<T>(),
                                              mask.as<uint8_t>(), x.as<T>(), residual.as<T>(),
                                              Channels<C>(mean, var, w, eps), b.as<C>(), f == Activation::relu, rows);
        },
        y.as<T>(), x.as<T>(), residual.as<T>());
  });
}

namespace {

// dy and x of a pack, and the mask's bits.
template <class T, int kWidth> struct GradientPack {
  Pack<T, kWidth> dy, x;
  unsigned bits;
  __device__ GradientPack(const T* dys, const uint8_t* mask, const T* xs, int64_t at, int64_t byte, int count)
      : dy(dys + at, count), x(xs + at, count), bits(mask ? mask[byte] : 0xff) {}
  __device__ compute_t<T> dz(int j) const { return bits >> j & 1 ? dy[j] : compute_t<T>(0); }
};

// Sums of dz and of dz (x - mean) in each column over a block's rows: partial (2, P, C, gridDim.y, n / C).
template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads) batch_norm_products(compute_t<T>* partial, const T* dy, const uint8_t* mask,
                                                                const T* x, const compute_t<T>* means, Rows rows) {
  using C = compute_t<T>;
  SHARED_ARRAY(C, tile, [kThreads * 2 * kPack]);
  C mean[kPack], sum[2 * kPack] = {};
  means += rows.first_channel();
  rows.for_each_channel([&](int j, int64_t c, int64_t) { mean[j] = means[c]; });
  rows.for_each_pack([&](int64_t at, int64_t byte, auto count) {
    const GradientPack<T, kWidth> pack(dy, mask, x, at, byte, count);
#pragma unroll
    for (int j = 0; j < kPack; ++j) {
      sum[j] += pack.dz(j);
      sum[kPack + j] += pack.dz(j) * (pack.x[j] - mean[j]);
    }
  });
  C* const own = tile + thread_in_block();  // stride kThreads, so that neighbouring threads are adjacent
#pragma unroll
  for (int j = 0; j < 2 * kPack; ++j) own[j * kThreads] = sum[j];
  for (int half = int(blockDim.y) / 2; half > 0; half /= 2) {
    __syncthreads();
    if (int(threadIdx.y) < half)
      for (int j = 0; j < 2 * kPack; ++j) own[j * kThreads] += own[j * kThreads + half * int(blockDim.x)];
  }
  if (threadIdx.y > 0 || rows.column() >= rows.n) return;
  const int64_t splits = gridDim.y * rows.in_a_row();
  rows.for_each_channel([&](int j, int64_t c, int64_t before) {
    C* const to = partial + (rows.first_channel() + c) * splits + blockIdx.y * rows.in_a_row() + before;
    to[0] = own[j * kThreads];
    to[rows.parts * rows.channels * splits] = own[(kPack + j) * kThreads];
  });
}

// The first P C outputs are db, the others dw.
template <class C> struct ReduceProducts : OfNumbers<C, Sum> {
  C *db, *dw;
  const C* var;
  C eps;
  int64_t each;
  ReduceProducts(C* b, C* w, const C* v, C e, int64_t n) : db(b), dw(w), var(v), eps(e), each(n) {}
  __device__ void finish(int64_t o, C sum) const {
    if (o < each) db[o] = sum;
    else dw[o - each] = sum * inverse_deviation(var, o - each, eps);
  }
};

}  // namespace

void batch_norm_backward_sums(View db, View dw, View dy, View mask, View x, View mean, View var, double eps) {
  const Rows rows(x, mean);
  if (rows.channels == 0) return;
  const int64_t each = rows.parts * rows.channels;
  dispatch_float(x.dtype, [&]<class T>() {
    using C = compute_t<T>;
    const Grid grid = rows.grid(kReduceBlocks, kReduceUnroll);
    const int64_t splits = grid.blocks.y * rows.in_a_row();
    const Tensor partial({2 * each, splits}, dtype_of<C>::value, x.device);
    by_width<T>(
        rows,
        [&]<int kWidth>() {
          launch<batch_norm_products<T, kWidth>>(x.device, grid, View(partial).as<C>(), dy.as<T>(), mask.as<uint8_t>(),
                                                 x.as<T>(), mean.as<C>(), rows);
        },
        dy.as<T>(), x.as<T>());
    const ReduceProducts<C> finish(db.as<C>(), dw.as<C>(), var.as<C>(), C(eps), each);
    launch_combine(x.device, launchable<reduce_partial<ReduceProducts<C>>>(), &finish, View(partial).data, 2 * each,
                   splits);
  });
}

namespace {

template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads)
    batch_norm_gradient(T* dx, T* dresidual, const T* dy, const uint8_t* mask, const T* x,
                        Channels<compute_t<T>> channels, const compute_t<T>* db, const compute_t<T>* dw,
                        compute_t<T> share, Rows rows) {
  using C = compute_t<T>;
  NormalizeGradient<C> gradient[kPack];
  const int64_t first = rows.first_channel();
  const Channels<C> own = channels.from(first);
  if (db) db += first, dw += first;
  rows.for_each_channel(
      [&](int j, int64_t c, int64_t) { gradient[j] = NormalizeGradient<C>::of(own, db, dw, share, c); });
  rows.for_each_pack([&](int64_t at, int64_t byte, auto count) {
    const GradientPack<T, kWidth> pack(dy, mask, x, at, byte, count);
    C dz[kPack], v[kPack];
#pragma unroll
    for (int j = 0; j < kPack; ++j) {
      dz[j] = pack.dz(j);
      v[j] = gradient[j](dz[j], pack.x[j]);
    }
    if (dresidual) write<kWidth>(dresidual + at, dz, count);
    write<kWidth>(dx + at, v, count);
  });
}

}  // namespace

void batch_norm_backward(View dx, View dresidual, View dy, View mask, View x, View mean, View var, View w, View db,
                         View dw, int64_t count, double eps) {
  if (x.size() == 0) return;
  const Rows rows(x, mean);
  dispatch_float(x.dtype, [&]<class T>() {
    using C = compute_t<T>;
    by_width<T>(
        rows,
        [&]<int kWidth>() {
          launch<batch_norm_gradient<T, kWidth>>(x.device, rows.grid(most_blocks(x.device), 1), dx.as<T>(),
                                                 dresidual.as<T>(), dy.as<T>(), mask.as<uint8_t>(), x.as<T>(),
                                                 Channels<C>(mean, var, w, eps), db.as<C>(), dw.as<C>(),
                                                 C(1 / double(count)), rows);
        },
        dx.as<T>(), dresidual.as<T>(), dy.as<T>(), x.as<T>());
  });
}

}  // namespace ringtape::cuda
