#include "kernels/batch_norm.h"

#include "kernels/cuda/math.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/reducers.cuh"

namespace ringtape::cuda {
namespace {

template <class T>
struct Statistics : Moments<T> {
  using typename Moments<T>::C, typename Moments<T>::Acc;
  void *mean, *var;
  bool wide;  // whether they are f64
  Statistics(const View& m, const View& v) : mean(m.data), var(v.data), wide(m.dtype == DType::f64) {}
  __device__ void finish(int64_t o, const Acc& all) const {
    put(mean, o, all.mean);
    put(var, o, all.n > 0 ? all.squares / all.n : C(0));
  }
  __device__ void put(void* to, int64_t o, C value) const {
    if (wide) static_cast<double*>(to)[o] = value;
    else static_cast<C*>(to)[o] = value;
  }
};

// Contiguous x (..., C) as a matrix.
View matrix(const View& x, int64_t rows) {
  View m = x;
  m.rank = 2;
  m.dims[0] = rows;
  m.dims[1] = m.strides[0] = x.dims[x.rank - 1];
  m.strides[1] = 1;
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

template <class C>
__global__ void update_running(C* running_mean, C* running_var, int64_t* batches, const C* mean, const C* var,
                               int64_t channels, C momentum, C correction) {
  for (int64_t c = thread_in_grid(); c < channels; c += threads_in_grid()) {
    running_mean[c] = (1 - momentum) * running_mean[c] + momentum * mean[c];
    running_var[c] = (1 - momentum) * running_var[c] + momentum * (var[c] * correction);
  }
  if (thread_in_grid() == 0) ++*batches;
}

}  // namespace

void batch_norm_statistics(View mean, View var, View x) {
  const int64_t channels = x.dims[x.rank - 1];
  if (channels == 0) return;
  const View rows = matrix(x, x.size() / channels);
  dispatch_float(x.dtype, [&]<class T>() {
    reduce<T>(Statistics<T>(mean, var), matrix(x, 1), rows);
  });
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

void batch_norm_running(View running_mean, View running_var, View batches, View mean, View var, double momentum,
                        double correction) {
  dispatch_float(mean.dtype, [&]<class T>() {
    using C = compute_t<T>;
    launch<update_running<C>>(mean.device, covering(mean.device, mean.dims[0]), running_mean.as<C>(),
                              running_var.as<C>(), batches.as<int64_t>(), mean.as<C>(), var.as<C>(), mean.dims[0],
                              C(momentum), C(correction));
  });
}

namespace {

// A thread handles kPack neighbouring elements (one byte of the mask) of rows at a fixed distance, so that the values
// of its channels stay in registers. A row here is the smallest number of rows of channels that is a whole number of
// packs; the last one may be shorter.
constexpr int kPack = 8, kThreads = 256;

struct Rows {
  int64_t channels, n, size;

  explicit Rows(const View& x) : channels(x.dims[x.rank - 1]), n(channels), size(x.size()) {
    while (n % kPack != 0) n *= 2;
  }
  int64_t count() const { return divide_up(size, n); }
  // At most `most` blocks, with at least `least` rows per thread.
  Grid grid(int64_t most, int64_t least) const {
    const int across = power_of_two(n / kPack, kThreads), down = kThreads / across;
    const int64_t groups = divide_up(n / kPack, across),
                  splits = std::min(most / groups, divide_up(count(), down * least));
    return {dim3(unsigned(groups), unsigned(std::max<int64_t>(splits, 1))), dim3(unsigned(across), unsigned(down))};
  }
  __device__ int64_t column() const { return (int64_t(blockIdx.x) * blockDim.x + threadIdx.x) * kPack; }
  __device__ int64_t channel(int j) const { return (column() + j) % channels; }
  // Calls f(first element, elements) for the packs of this thread.
  template <class F>
  __device__ void for_each_pack(const F& f) const {
    if (column() >= n) return;
    const int64_t first = int64_t(blockIdx.y) * blockDim.y + threadIdx.y, step = int64_t(gridDim.y) * blockDim.y * n;
    for (int64_t at = first * n + column(); at < size; at += step) f(at, int(min(int64_t(kPack), size - at)));
  }
};

template <class T>
constexpr int kWidest = sizeof(T) == 8 ? 1 : int(16 / sizeof(T));

// Loads kWidth at a time; 0 from `count` on.
template <int kWidth, class T, class C>
__device__ void read(C (&x)[kPack], const T* from, int count) {
  if (count == kPack) {
#pragma unroll
    for (int i = 0; i < kPack; i += kWidth) {
      const Vec<T, kWidth> v = load<kWidth>(from + i);
#pragma unroll
      for (int j = 0; j < kWidth; ++j) x[i + j] = C(v.x[j]);
    }
  } else {
#pragma unroll
    for (int j = 0; j < kPack; ++j) x[j] = j < count ? C(from[j]) : C(0);
  }
}

template <int kWidth, class T, class C>
__device__ void write(T* to, const C (&x)[kPack], int count) {
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

template <class C>
__device__ C inverse_deviation(const C* var, int64_t c, C eps) { return 1 / Math::sqrt(var[c] + eps); }

// The values per channel, including w / sqrt(var + eps).
template <class C>
struct Channels {
  const C *mean, *var, *w;
  C eps;
  Channels(const View& m, const View& v, const View& weight, double e)
      : mean(m.as<C>()), var(v.as<C>()), w(weight.as<C>()), eps(C(e)) {}
};

template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads)
    batch_norm_apply(T* y, uint8_t* mask, const T* x, const T* residual, Channels<compute_t<T>> channels,
                     const compute_t<T>* b, bool relu, Rows rows) {
  using C = compute_t<T>;
  C mean[kPack], scale[kPack], shift[kPack];
#pragma unroll
  for (int j = 0; j < kPack; ++j) {
    const int64_t c = rows.channel(j);
    mean[j] = channels.mean[c];
    scale[j] = channels.w[c] * inverse_deviation(channels.var, c, channels.eps);
    shift[j] = b[c];
  }
  rows.for_each_pack([&](int64_t at, int count) {
    C v[kPack], r[kPack] = {};
    read<kWidth>(v, x + at, count);
    if (residual) read<kWidth>(r, residual + at, count);
    unsigned above = 0;
#pragma unroll
    for (int j = 0; j < kPack; ++j) {
      v[j] = (v[j] - mean[j]) * scale[j] + shift[j] + r[j];
      above |= unsigned(v[j] > 0 && j < count) << j;
      if (relu && v[j] < 0) v[j] = 0;
    }
    write<kWidth>(y + at, v, count);
    if (mask) mask[at / kPack] = uint8_t(above);
  });
}

// Calls f<kWidth>() with the widest access that all operands allow; operands may be null.
template <class T, class F, class... X>
void by_width(const F& f, const X*... x) {
  aligned_width(kWidest<T>, x...) == kWidest<T> ? f.template operator()<kWidest<T>>() : f.template operator()<1>();
}

int64_t most_blocks(Device device) { return covering(device, INT32_MAX, kThreads).blocks.x; }

}  // namespace

void batch_norm_forward(View y, View mask, View x, View residual, View mean, View var, View w, View b, double eps,
                        Activation f) {
  if (x.size() == 0) return;
  const Rows rows(x);
  dispatch_float(x.dtype, [&]<class T>() {
    using C = compute_t<T>;
    by_width<T>(
        [&]<int kWidth>() {
          launch<batch_norm_apply<T, kWidth>>(x.device, rows.grid(most_blocks(x.device), 1), y.as<T>(),
                                              mask.as<uint8_t>(), x.as<T>(), residual.as<T>(),
                                              Channels<C>(mean, var, w, eps), b.as<C>(), f == Activation::relu, rows);
        },
        y.as<T>(), x.as<T>(), residual.as<T>());
  });
}

namespace {

template <int kWidth, class T, class C>
__device__ void read_masked(C (&dz)[kPack], const T* dy, const uint8_t* mask, int64_t at, int count) {
  read<kWidth>(dz, dy + at, count);
  const unsigned bits = mask ? mask[at / kPack] : 0xff;
#pragma unroll
  for (int j = 0; j < kPack; ++j) dz[j] = bits >> j & 1 ? dz[j] : C(0);
}

// Sums of dz and of dz (x - mean) in each column over a block's rows: partial (gridDim.y, n / C, 2, C).
template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads) batch_norm_products(compute_t<T>* partial, const T* dy, const uint8_t* mask,
                                                                const T* x, const compute_t<T>* means, Rows rows) {
  using C = compute_t<T>;
  SHARED_ARRAY(C, tile, [kThreads * 2 * kPack]);
  C mean[kPack], sum[2 * kPack] = {};
#pragma unroll
  for (int j = 0; j < kPack; ++j) mean[j] = means[rows.channel(j)];
  rows.for_each_pack([&](int64_t at, int count) {
    C dz[kPack], v[kPack];
    read_masked<kWidth>(dz, dy, mask, at, count);
    read<kWidth>(v, x + at, count);
#pragma unroll
    for (int j = 0; j < kPack; ++j) {
      sum[j] += dz[j];
      sum[kPack + j] += dz[j] * (v[j] - mean[j]);
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
  for (int j = 0; j < kPack; ++j) {
    const int64_t c = rows.channel(j);
    C* const to = partial + (blockIdx.y * rows.n + rows.column() + j - c) * 2 + c;
    to[0] = own[j * kThreads];
    to[rows.channels] = own[(kPack + j) * kThreads];
  }
}

// For rows of partial sums (2 C): the first C outputs are db, the others dw.
template <class C>
struct ReduceProducts : OfNumbers<C, Sum> {
  C *db, *dw;
  const C* var;
  C eps;
  int64_t channels;
  ReduceProducts(C* b, C* w, const C* v, C e, int64_t n) : db(b), dw(w), var(v), eps(e), channels(n) {}
  __device__ void finish(int64_t o, C sum) const {
    if (o < channels) db[o] = sum;
    else dw[o - channels] = sum * inverse_deviation(var, o - channels, eps);
  }
};

}  // namespace

void batch_norm_backward_sums(View db, View dw, View dy, View mask, View x, View mean, View var, double eps) {
  const Rows rows(x);
  if (rows.channels == 0) return;
  dispatch_float(x.dtype, [&]<class T>() {
    using C = compute_t<T>;
    const Grid grid = rows.grid(kReduceBlocks, kReduceUnroll);
    const Tensor partial({grid.blocks.y * (rows.n / rows.channels), 2 * rows.channels}, dtype_of<C>::value, x.device);
    const Tensor totals = partial.window({1, 2 * rows.channels}, partial.strides());  // used for its shape only
    by_width<T>(
        [&]<int kWidth>() {
          launch<batch_norm_products<T, kWidth>>(x.device, grid, View(partial).as<C>(), dy.as<T>(), mask.as<uint8_t>(),
                                                 x.as<T>(), mean.as<C>(), rows);
        },
        dy.as<T>(), x.as<T>());
    const ReduceProducts<C> finish(db.as<C>(), dw.as<C>(), var.as<C>(), C(eps), rows.channels);
    reduce_by_columns<1>(x.device, finish, View(partial).as<const C>(), reduce_shape(totals, partial));
  });
}

namespace {

template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads)
batch_norm_gradient(T* dx, T* dresidual, const T* dy, const uint8_t* mask, const T* x, Channels<compute_t<T>> channels,
                    const compute_t<T>* db, const compute_t<T>* dw, compute_t<T> share, Rows rows) {
  using C = compute_t<T>;
  C mean[kPack], scale[kPack], shift[kPack], slope[kPack];
#pragma unroll
  for (int j = 0; j < kPack; ++j) {
    const int64_t c = rows.channel(j);
    const C inverse = inverse_deviation(channels.var, c, channels.eps);
    mean[j] = channels.mean[c];
    scale[j] = channels.w[c] * inverse;
    shift[j] = db ? db[c] * share : C(0);
    slope[j] = dw ? dw[c] * share * inverse : C(0);
  }
  rows.for_each_pack([&](int64_t at, int count) {
    C dz[kPack], v[kPack];
    read_masked<kWidth>(dz, dy, mask, at, count);
    read<kWidth>(v, x + at, count);
    if (dresidual) write<kWidth>(dresidual + at, dz, count);
#pragma unroll
    for (int j = 0; j < kPack; ++j) v[j] = scale[j] * (dz[j] - shift[j] - slope[j] * (v[j] - mean[j]));
    write<kWidth>(dx + at, v, count);
  });
}

}  // namespace

void batch_norm_backward(View dx, View dresidual, View dy, View mask, View x, View mean, View var, View w, View db,
                         View dw, int64_t count, double eps) {
  if (x.size() == 0) return;
  const Rows rows(x);
  dispatch_float(x.dtype, [&]<class T>() {
    using C = compute_t<T>;
    by_width<T>(
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
