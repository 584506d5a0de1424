#include "kernels/batch_norm.h"

#include <cmath>

#include "kernels/cpu/channel_sums.h"
#include "kernels/cpu/elementwise.h"

RT_ISA_BEGIN

namespace {

template <class C>
C inverse_deviation(const View& var, int64_t c, double eps) { return C(1 / std::sqrt(double(var.as<C>()[c]) + eps)); }

// Adds `rows` rows to mean and squares (the sum of squared distances from the mean) of `before` rows. Merging follows
// Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm for computing sample variances" (1979), in
// double. So f32 rounding happens only within tiles, which are the same for any distribution of a batch over ranks, if
// each image has a whole number of tiles.
template <int rows, class T>
void add_moments(double* mean, double* squares, const T* x, int64_t n, int64_t before) {
  using C = compute_t<T>;
  const double share = double(rows) / double(before + rows), weight = double(before) * share;
  for (int64_t i = 0; i < n; i += kLanes<C>) {
    Vec<C> v[rows];
    for (int r = 0; r < rows; ++r) v[r] = load_converted(x + r * n + i, kLanes<C>);
    const Vec<C> center = tree_sum<rows>(v) * (C(1) / rows);
    for (int r = 0; r < rows; ++r) v[r] = (v[r] - center) * (v[r] - center);
    const Vec<C> own = tree_sum<rows>(v);
  RT_IVDEP
    for (int64_t l = 0; l < kLanes<C>; ++l) {
      const double distance = double(center[l]) - mean[i + l];
      mean[i + l] += distance * share;
      squares[i + l] += double(own[l]) + distance * distance * weight;
    }
  }
}

template <class T>
void chunk_moments(double* mean, double* squares, const T* x, int64_t n, int64_t rows) {
  int64_t r = 0;
  for (; r + kTile <= rows; r += kTile) add_moments<kTile>(mean, squares, x + r * n, n, r);
  for (; r < rows; ++r) add_moments<1>(mean, squares, x + r * n, n, r);
}

// Merges the results of the chunks, (chunks, 2, n), for each column into totals (2, n).
void combine_chunks(double* mean, double* squares, const double* part, const Rows& rows) {
  double before = 0;
  for (int64_t c = 0; c < rows.chunks; ++c, part += 2 * rows.n) {
    const double own = double(rows.chunk_end(c) - rows.chunk_begin(c)), share = own / (before + own),
                 weight = before * share;
    RT_IVDEP
    for (int64_t i = 0; i < rows.n; ++i) {
      const double distance = part[i] - mean[i];
      mean[i] += distance * share;
      squares[i] += part[rows.n + i] + distance * distance * weight;
    }
    before += own;
  }
}

}  // namespace

void batch_norm_statistics(View mean, View var, View x, RunningUpdate running) {
  const Rows rows(x);
  dispatch_float(x.dtype, [&]<class T>() {
    using C = compute_t<T>;
    std::vector<double> part(size_t(rows.chunks * 2 * rows.n));
    parallel_for(rows.chunks, 1, [&](int64_t begin, int64_t end) {
      for (int64_t c = begin; c < end; ++c) {
        double* own = part.data() + c * 2 * rows.n;
        chunk_moments(own, own + rows.n, x.as<T>() + rows.chunk_begin(c) * rows.n, rows.n,
                      rows.chunk_end(c) - rows.chunk_begin(c));
      }
    });
    std::vector<double> total(size_t(2 * rows.n));
    combine_chunks(total.data(), total.data() + rows.n, part.data(), rows);
    const auto put = [](const View& to, int64_t c, double value) {
      if (to.dtype == DType::f64) to.as<double>()[c] = value;
      else to.as<float>()[c] = float(value);
    };
    for (int64_t c = 0; c < rows.channels; ++c) {
      Moments all;
      for (int64_t i = c; rows.count > 0 && i < rows.n; i += rows.channels)
        all.add(double(rows.count), total[size_t(i)], total[size_t(rows.n + i)]);
      for (int64_t i = c; i < rows.rest; i += rows.channels) all.add(1, double(C(x.as<T>()[rows.rest_begin() + i])), 0);
      put(mean, c, all.mean);
      put(var, c, all.variance());
    }
  });
  if (running.mean.data) batch_norm_running(mean, var, running);
}

void batch_norm_merge(View mean, View var, View unbiased, View count, View parts) {
  dispatch_float(mean.dtype, [&]<class T>() {
    using C = compute_t<T>;
    const int64_t channels = mean.dims[0];
    std::vector<Moments> all(size_t(channels), Moments{});
    double rows = 0;
    for (int64_t p = 0; p < parts.dims[0]; ++p) {
      const double* const part = parts.as<double>() + p * (2 * channels + 1);
      const double own = part[2 * channels];
      rows += own;
      for (int64_t c = 0; own > 0 && c < channels; ++c) all[size_t(c)].add(own, part[c], part[channels + c] * own);
    }
    for (int64_t c = 0; c < channels; ++c) {
      mean.as<C>()[c] = C(all[size_t(c)].mean);
      var.as<C>()[c] = C(all[size_t(c)].variance());
      unbiased.as<C>()[c] = C(all[size_t(c)].squares / (rows - 1));
    }
    *count.as<C>() = C(rows);
  });
}

void batch_norm_running(View mean, View var, RunningUpdate running) {
  const auto update = [momentum = running.momentum](const View& to, const View& now, double factor) {
    map([=]<class C>(C kept, C x) { return C(1 - momentum) * kept + C(momentum) * (x * C(factor)); }, to, to, now);
  };
  update(running.mean, mean, 1);
  update(running.var, var, running.correction);
  ++*running.batches.as<int64_t>();
}

namespace {

// One row of n elements. residual and mask may be null.
template <class T, class C>
void normalize_row(T* y, uint8_t* mask, const T* x, const T* residual, const C* mean, const C* scale, const C* b,
                   bool relu, int64_t n) {
  for (int64_t i = 0; i < n; i += kPack) {
    unsigned above = 0;
#pragma GCC unroll 8
    for (int64_t l = 0; l < kPack; l += kLanes<C>) {
      const int64_t at = i + l, left = n - at;
      if (left <= 0) break;
      Vec<C> v = (load_converted(x + at, left) - load(mean + at)) * load(scale + at) + load(b + at);
      if (residual) v += load_converted(residual + at, left);
      if (relu) {
        above |= bits_above_zero<C>(v) << l;
        v = v < 0 ? Vec<C>{} : v;
      }
      store_converted(y + at, v, left);
    }
    if (!mask) continue;
    const auto bits = uint16_t(n - i < kPack ? above & ((1u << (n - i)) - 1) : above);
    std::memcpy(mask + i / 8, &bits, sizeof bits);
  }
}

}  // namespace

void batch_norm_forward(View y, View mask, View x, View residual, View mean, View var, View w, View b, double eps,
                        Activation f) {
  const Rows rows(x);
  dispatch_float(x.dtype, [&]<class T>() {
    using C = compute_t<T>;
    const PerColumn<C> center(rows, [&](int64_t c) { return mean.as<C>()[c]; }),
        shift(rows, [&](int64_t c) { return b.as<C>()[c]; });
    const PerColumn<C> scale(rows, [&](int64_t c) { return w.as<C>()[c] * inverse_deviation<C>(var, c, eps); });
    for_each_row(rows, [&](int64_t at, int64_t n) {
      normalize_row<T, C>(y.as<T>() + at, mask.data ? mask.as<uint8_t>() + at / 8 : nullptr, x.as<T>() + at,
                          residual.data ? residual.as<T>() + at : nullptr, center, scale, shift, f == Activation::relu,
                          n);
    });
  });
}

void batch_norm_backward_sums(View db, View dw, View dy, View mask, View x, View mean, View var, double eps) {
  const Rows rows(x);
  dispatch_float(x.dtype, [&]<class T>() {
    using C = compute_t<T>;
    const PerColumn<C> center(rows, [&](int64_t c) { return mean.as<C>()[c]; });
    const auto bits = [&](int64_t at) { return mask.data ? mask.as<uint8_t>() + at / 8 : nullptr; };
    std::vector<C> part(size_t(rows.chunks * 2 * rows.n));
    parallel_for(rows.chunks, 1, [&](int64_t begin, int64_t end) {
      for (int64_t c = begin; c < end; ++c) {
        const int64_t at = rows.chunk_begin(c) * rows.n;
        C* own = part.data() + c * 2 * rows.n;
        chunk_products<T, C>(own, own + rows.n, dy.as<T>() + at, bits(at), x.as<T>() + at, center, rows.n,
                             rows.chunk_end(c) - rows.chunk_begin(c));
      }
    });
    std::vector<double> total(size_t(2 * rows.n));
    for (int64_t c = 0; c < rows.chunks; ++c)
      for (int64_t i = 0; i < 2 * rows.n; ++i) total[size_t(i)] += double(part[size_t(c * 2 * rows.n + i)]);
    for (int64_t i = 0; i < rows.rest; ++i) {
      const int64_t at = rows.rest_begin() + i;
      if (mask.data && !(mask.as<uint8_t>()[at / 8] >> (at % 8) & 1)) continue;
      const double g = double(C(dy.as<T>()[at]));
      total[size_t(i)] += g;
      total[size_t(rows.n + i)] += g * (double(C(x.as<T>()[at])) - double(center[i]));
    }
    for (int64_t c = 0; c < rows.channels; ++c) {
      double sum = 0, dot = 0;
      for (int64_t i = c; i < rows.n; i += rows.channels) sum += total[size_t(i)], dot += total[size_t(rows.n + i)];
      db.as<C>()[c] = C(sum);
      dw.as<C>()[c] = C(dot) * inverse_deviation<C>(var, c, eps);
    }
  });
}

namespace {

// dx = scale (dz - shift - slope (x - mean)) for a row of n elements.
template <class T, class C>
void backward_row(T* dx, T* dresidual, const T* dy, const uint8_t* mask, const T* x, const C* mean, const C* scale,
                  const C* shift, const C* slope, int64_t n) {
  for (int64_t i = 0; i < n; i += kLanes<C>) {
    const int64_t left = n - i;
    const Vec<C> dz = masked(dy, mask, i, left);
    if (dresidual) store_converted(dresidual + i, dz, left);
    const Vec<C> centered = load_converted(x + i, left) - load(mean + i);
    store_converted(dx + i, load(scale + i) * (dz - load(shift + i) - load(slope + i) * centered), left);
  }
}

}  // namespace

void batch_norm_backward(View dx, View dresidual, View dy, View mask, View x, View mean, View var, View w, View db,
                         View dw, int64_t count, double eps) {
  const Rows rows(x);
  dispatch_float(x.dtype, [&]<class T>() {
    using C = compute_t<T>;
    const C share = C(1 / double(count));
    const PerColumn<C> center(rows, [&](int64_t c) { return mean.as<C>()[c]; });
    const PerColumn<C> scale(rows, [&](int64_t c) { return w.as<C>()[c] * inverse_deviation<C>(var, c, eps); });
    const PerColumn<C> shift(rows, [&](int64_t c) { return db.data ? db.as<C>()[c] * share : C(0); });
    const PerColumn<C> slope(
        rows, [&](int64_t c) { return dw.data ? dw.as<C>()[c] * share * inverse_deviation<C>(var, c, eps) : C(0); });
    for_each_row(rows, [&](int64_t at, int64_t n) {
      backward_row<T, C>(dx.as<T>() + at, dresidual.data ? dresidual.as<T>() + at : nullptr, dy.as<T>() + at,
                         mask.data ? mask.as<uint8_t>() + at / 8 : nullptr, x.as<T>() + at, center, scale, shift, slope,
                         n);
    });
  });
}

RT_ISA_END
