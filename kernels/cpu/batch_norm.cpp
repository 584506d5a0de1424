#include "kernels/batch_norm.h"

#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/vector/channel_sums.h"
#include "kernels/cpu/vector/normalize.h"
#include "kernels/cpu/vector/scratch.h"
#include "kernels/reduce.h"

RT_ISA_BEGIN

namespace {

// Calls f(part) for each of several parts, where part(v) is that of an operand v, which may have no data. Returns
// whether there are several.
template <class F> bool in_parts(const View& each, const View& x, const F& f) {
  const int64_t parts = batch_norm_parts(each, x);
  for (int64_t p = 0; parts > 1 && p < parts; ++p)
    f([=](View v) {
      if (!v.data) return v;
      v.dims[0] /= parts;
      v.data = static_cast<char*>(v.data) + p * v.size() * int64_t(size_of(v.dtype));
      return v;
    });
  return parts > 1;
}

// Adds the moments of half h of `rows` rows, from x on, to mean and squares; see add_moments.
template <int rows, int h, class T>
RT_INLINE void add_half(double* mean, double* squares, const T* x, int64_t n, int64_t count, double share,
                        double weight) {
  using C = compute_t<T>;
  constexpr int64_t lanes = kLanes<double>;
  Vec<C> v[rows];
#pragma GCC unroll 16
  for (int r = 0; r < rows; ++r, x += n) {
    in_register(x);  // one pointer instead of one a row
    v[r] = load_wide(x, count).half[h];
  }
  const Vec<C> center = tree_sum<rows>(v) * (C(1) / rows);
#pragma GCC unroll 16
  for (int r = 0; r < rows; ++r) v[r] = (v[r] - center) * (v[r] - center);
  const Vec<C> own = tree_sum<rows>(v);
  mean += h * kLanes<C>, squares += h * kLanes<C>;
  const auto merge = [&]<int part>() RT_INLINE_LAMBDA {
    const Vec<double> before = load(mean + part * lanes), distance = in_double<part>(center) - before;
    store(mean + part * lanes, before + distance * share);
    store(squares + part * lanes, load(squares + part * lanes) + (in_double<part>(own) + distance * distance * weight));
  };
  merge.template operator()<0>();
  if constexpr (kLanes < C >> lanes) merge.template operator()<1>();
}

// Adds `rows` rows to mean and squares (the sum of squared distances from the mean) of `before` rows, both in the order
// of lanes. Merging follows Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm for computing sample
// variances" (1979), in double. So f32 rounding happens only within tiles, which are the same for any distribution of a
// batch over ranks, if each image has a whole number of tiles.
template <int rows, class T> void add_moments(double* mean, double* squares, const T* x, int64_t n, int64_t before) {
  const double share = double(rows) / double(before + rows), weight = double(before) * share;
  for_each_step<kWide<T>>(n, [&](int64_t i, auto left) RT_INLINE_LAMBDA {
    if constexpr (rows > 1) prefetch_next_tile<rows>(x, n, i);
    add_half<rows, 0>(mean + i, squares + i, x + i, n, left, share, weight);
    if constexpr (kHalves<T> == 2) add_half<rows, 1>(mean + i, squares + i, x + i, n, left, share, weight);
  });
}

template <class T> void chunk_moments(double* mean, double* squares, const T* x, int64_t n, int64_t rows) {
  int64_t r = 0;
  for (; r + kTile <= rows; r += kTile) add_moments<kTile>(mean, squares, x + r * n, n, r);
  for (; r < rows; ++r) add_moments<1>(mean, squares, x + r * n, n, r);
}

// Merges the results of the chunks, (chunks, 2, size), for each column into totals (2, size).
void combine_chunks(double* totals, const double* part, int64_t size, const Rows& rows) {
  double *const mean = totals, *const squares = totals + size;
  double before = 0;
  std::fill_n(totals, 2 * size, 0.0);
  for (int64_t c = 0; c < rows.chunks; ++c, part += 2 * size) {
    const double own = double(rows.chunk_end(c) - rows.chunk_begin(c)), share = own / (before + own),
                 weight = before * share;
    RT_IVDEP
    for (int64_t i = 0; i < size; ++i) {
      const double distance = part[i] - mean[i];
      mean[i] += distance * share;
      squares[i] += part[size + i] + distance * distance * weight;
    }
    before += own;
  }
}

}  // namespace

void batch_norm_statistics(View mean, View var, View x, RunningUpdate running) {
  if (in_parts(mean, x, [&](const auto& part) { batch_norm_statistics(part(mean), part(var), part(x), {}); })) {
    if (running.mean.data) batch_norm_running(mean, var, running);
    return;
  }
  const Rows rows(x);
  dispatch_float(x.dtype, [&]<class T>() {
    using C = compute_t<T>;
    const int64_t size = wide_size<T>(rows.n);
    const Scratch<double> all((rows.chunks + 1) * 2 * size, x.device);
    double* const part = all.data() + 2 * size;
    parallel_for(rows.chunks, 1, [&](int64_t begin, int64_t end) {
      for (int64_t c = begin; c < end; ++c) {
        double* own = part + c * 2 * size;
        std::fill_n(own, 2 * size, 0.0);
        chunk_moments(own, own + size, x.as<T>() + rows.chunk_begin(c) * rows.n, rows.n,
                      rows.chunk_end(c) - rows.chunk_begin(c));
      }
    });
    const double* const total = all.data();
    combine_chunks(all.data(), part, size, rows);
    const auto put = [](const View& to, int64_t c, double value) {
      if (to.dtype == DType::f64) to.as<double>()[c] = value;
      else to.as<float>()[c] = float(value);
    };
    for (int64_t c = 0; c < rows.channels; ++c) {
      Moments of_channel;
      for (int64_t i = c; rows.count > 0 && i < rows.n; i += rows.channels)
        of_channel.add(double(rows.count), total[place_of<T>(i)], total[size + place_of<T>(i)]);
      for (int64_t i = c; i < rows.rest; i += rows.channels)
        of_channel.add(1, double(C(x.as<T>()[rows.rest_begin() + i])), 0);
      put(mean, c, of_channel.mean);
      put(var, c, of_channel.variance());
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

// Of values (P, C), in `memory`: (C).
static View mean_of_parts(View each, int64_t channels, double* memory) {
  const int64_t parts = each.size() / std::max<int64_t>(channels, 1);
  if (parts <= 1) return each;
  View mean = each;
  each.rank = mean.rank = 2;
  each.dims[0] = parts, each.strides[0] = channels, mean.dims[0] = 1;
  each.dims[1] = mean.dims[1] = channels, each.strides[1] = mean.strides[1] = 1;
  mean.data = memory;
  mean_forward(mean, each);
  mean.rank = 1, mean.dims[0] = channels, mean.strides[0] = 1;
  return mean;
}

void batch_norm_running(View mean, View var, RunningUpdate running) {
  const Scratch<double> memory(running.mean.size(), mean.device);
  const auto update = [&, momentum = running.momentum](const View& to, const View& each, double factor) {
    const View now = mean_of_parts(each, to.size(), memory.data());
    map([=]<class C>(C kept, C x) { return C(1 - momentum) * kept + C(momentum) * (x * C(factor)); }, to, to, now);
  };
  update(running.mean, mean, 1);
  update(running.var, var, running.correction);
  ++*running.batches.as<int64_t>();
}

void batch_norm_forward(View y, View mask, View x, View residual, View mean, View var, View w, View b, double eps,
                        Activation f) {
  if (in_parts(mean, x, [&](const auto& part) {
        batch_norm_forward(part(y), part(mask), part(x), part(residual), part(mean), part(var), w, b, eps, f);
      }))
    return;
  const Rows rows(x);
  dispatch_float(x.dtype, [&]<class T>() {
    const Normalize<T> normalize(rows, mean, var, w, b, eps);
    for_each_row(rows, [&](int64_t at, int64_t n) {
      normalize.row(y.data ? y.as<T>() + at : nullptr, mask.data ? mask.as<uint8_t>() + at / 8 : nullptr,
                    x.as<T>() + at, residual.data ? residual.as<T>() + at : nullptr, f == Activation::relu, n);
    });
  });
}

void batch_norm_backward_sums(View db, View dw, View dy, View mask, View x, View mean, View var, double eps) {
  if (in_parts(mean, x, [&](const auto& part) {
        batch_norm_backward_sums(part(db), part(dw), part(dy), part(mask), part(x), part(mean), part(var), eps);
      }))
    return;
  const Rows rows(x);
  dispatch_float(x.dtype, [&]<class T>() {
    using C = compute_t<T>;
    const PerColumn<T> center(rows, [&](int64_t c) { return mean.as<C>()[c]; });
    const auto bits = [&](int64_t at) { return mask.data ? mask.as<uint8_t>() + at / 8 : nullptr; };
    const int64_t size = wide_size<T>(rows.n);
    const Scratch<C> parts(rows.chunks * 2 * size, x.device);
    parallel_for(rows.chunks, 1, [&](int64_t begin, int64_t end) {
      for (int64_t c = begin; c < end; ++c) {
        const int64_t at = rows.chunk_begin(c) * rows.n;
        C* own = parts.data() + c * 2 * size;
        std::fill_n(own, 2 * size, C(0));
        chunk_products<T>(own, own + size, dy.as<T>() + at, bits(at), x.as<T>() + at, center, rows.n,
                          rows.chunk_end(c) - rows.chunk_begin(c));
      }
    });
    const Scratch<double> totals(2 * size, x.device);
    double *const sums = totals.data(), *const dots = sums + size;
    std::fill_n(sums, 2 * size, 0.0);
    for (int64_t c = 0; c < rows.chunks; ++c)
      for (int64_t i = 0; i < 2 * size; ++i) sums[i] += double(parts.data()[c * 2 * size + i]);
    for (int64_t i = 0; i < rows.rest; ++i) {
      const int64_t at = rows.rest_begin() + i;
      if (mask.data && !(mask.as<uint8_t>()[at / 8] >> (at % 8) & 1)) continue;
      const double g = double(C(dy.as<T>()[at]));
      sums[place_of<T>(i)] += g;
      dots[place_of<T>(i)] += g * (double(C(x.as<T>()[at])) - double(center.at(i)));
    }
    for (int64_t c = 0; c < rows.channels; ++c) {
      double sum = 0, dot = 0;
      for (int64_t i = c; i < rows.n; i += rows.channels) sum += sums[place_of<T>(i)], dot += dots[place_of<T>(i)];
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
  for_each_step<kWide<T>>(n, [&](int64_t i, auto left) RT_INLINE_LAMBDA {
    prefetch_ahead(x + i), prefetch_ahead(dy + i), prefetch_to_write(dx + i);
    const Wide<T> dz = masked(dy, mask, i, left, dresidual ? dresidual + i : nullptr);
    const Wide<T> centered = load_wide(x + i, left) - load_in_order<T>(mean + i);
    store_wide(
        dx + i,
        load_in_order<T>(scale + i) * (dz - load_in_order<T>(shift + i) - load_in_order<T>(slope + i) * centered),
        left);
  });
}

}  // namespace

void batch_norm_backward(View dx, View dresidual, View dy, View mask, View x, View mean, View var, View w, View db,
                         View dw, int64_t count, double eps) {
  if (in_parts(mean, x, [&](const auto& part) {
        batch_norm_backward(part(dx), part(dresidual), part(dy), part(mask), part(x), part(mean), part(var), w,
                            part(db), part(dw), count, eps);
      }))
    return;
  const Rows rows(x, kLongRow);
  dispatch_float(x.dtype, [&]<class T>() {
    using C = compute_t<T>;
    const C share = C(1 / double(count));
    const PerColumn<T> center(rows, [&](int64_t c) { return mean.as<C>()[c]; });
    const PerColumn<T> scale(rows, [&](int64_t c) { return w.as<C>()[c] * inverse_deviation<C>(var, c, eps); });
    const PerColumn<T> shift(rows, [&](int64_t c) { return db.data ? db.as<C>()[c] * share : C(0); });
    const PerColumn<T> slope(
        rows, [&](int64_t c) { return dw.data ? dw.as<C>()[c] * share * inverse_deviation<C>(var, c, eps) : C(0); });
    for_each_row(rows, [&](int64_t at, int64_t n) {
      backward_row<T, C>(dx.as<T>() + at, dresidual.data ? dresidual.as<T>() + at : nullptr, dy.as<T>() + at,
                         mask.data ? mask.as<uint8_t>() + at / 8 : nullptr, x.as<T>() + at, center, scale, shift, slope,
                         n);
    });
  });
}

RT_ISA_END
