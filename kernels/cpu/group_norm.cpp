#include "kernels/group_norm.h"

#include <cmath>

#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/vector/channel_sums.h"
#include "kernels/cpu/vector/scratch.h"

RT_ISA_BEGIN

#define RT_NO_INLINE __attribute__((noinline))  // behind the parameters of what Samples::run calls in two places

namespace {

// x (N, M, C) with G groups. A sample's rows are those of batch_norm, in units of one chunk each, the last of which
// also has the remaining channels' rows.
struct Samples {
  int64_t count, channels, groups, in_group, size;  // size: elements of a sample
  Rows rows;
  int64_t units;
  std::vector<int64_t> group_of;  // each channel

  Samples(const View& x, const View& statistics)
      : count(x.dims[0]), channels(x.dims[2]), groups(statistics.dims[1]), in_group(channels / groups),
        size(x.dims[1] * channels), rows(sample_of(x)), units(std::max<int64_t>(rows.chunks, 1)),
        group_of(size_t(channels)) {
    for (int64_t c = 0; c < channels; ++c) group_of[size_t(c)] = c / in_group;
  }
  double per_group() const { return double(size / groups); }
  int64_t group(int64_t sample, int64_t channel) const { return sample * groups + group_of[size_t(channel)]; }

  // sums(sample, unit, its P[values]) for all units of a sample, then finish(sample, P[units][values]), then
  // apply(sample, unit). Samples go one by one, so that the last step finds them in the cache; if there are fewer of
  // them than threads, their units are shared out. P starts as zeros.
  template <class P, class Sums, class Finish, class Apply>
  void run(int64_t values, const Sums& sums, const Finish& finish, const Apply& apply) const {
    if (units == 1 || count >= threads()) {
      parallel_for(count, std::max<int64_t>(1, kGrain / 2 / size), [&](int64_t begin, int64_t end) {
        std::vector<P> part(size_t(units * values));
        for (int64_t i = begin; i < end; ++i) {
          std::fill(part.begin(), part.end(), P(0));
          for (int64_t u = 0; u < units; ++u) sums(i, u, part.data() + u * values);
          finish(i, part.data());
          for (int64_t u = units; u-- > 0;) apply(i, u);
        }
      });
      return;
    }
    std::vector<P> part(size_t(count * units * values));
    const auto each = [&](const auto& f) {
      parallel_for(count * units, 1, [&](int64_t begin, int64_t end) {
        for (int64_t q = begin; q < end; ++q) f(q);
      });
    };
    each([&](int64_t q) { sums(q / units, q % units, part.data() + q * values); });
    for (int64_t i = 0; i < count; ++i) finish(i, part.data() + i * units * values);
    each([&](int64_t q) { apply(q / units, q % units); });
  }
  // f(offset, elements) for the rows of a unit, also the shorter last one.
  template <class F> void for_each_row_of(int64_t sample, int64_t unit, const F& f) const {
    const int64_t at = sample * size;
    for (int64_t r = rows.chunk_begin(unit); r < rows.chunk_end(unit); ++r) f(at + r * rows.n, rows.n);
    if (unit == units - 1 && rows.rest > 0) f(at + rows.rest_begin(), rows.rest);
  }
  int64_t offset(int64_t sample, int64_t unit) const { return sample * size + rows.chunk_begin(unit) * rows.n; }
  int64_t rows_of(int64_t unit) const { return std::max<int64_t>(rows.chunk_end(unit) - rows.chunk_begin(unit), 0); }

 private:
  static View sample_of(View x) {
    x.rank = 2;
    x.dims[0] = x.dims[1], x.dims[1] = x.dims[2];
    return x;
  }
};

// Adds the distances of `rows` rows from `shift`, and their squares, to the sums (2, wide_size(n)) of the columns; all
// numbers are in the order of lanes.
template <class T, class C> void add_distances(double* sums, const T* x, const C* shift, int64_t n, int64_t rows) {
  double* const squares = sums + wide_size<T>(n);
  for (; rows > 0; rows -= kTile, x += kTile * n)
    for_each_step<kWide<T>>(n, [&](int64_t i, auto left) RT_INLINE_LAMBDA {
      const Wide<T> from = load_in_order<T>(shift + i);
      Wide<T> sum{}, square{};
      for (int64_t r = 0; r < std::min(rows, kTile); ++r) {
        __builtin_prefetch(x + (kTile + r) * n + i);
        const Wide<T> v = load_wide(x + r * n + i, left) - from;
        sum = sum + v;
        square = square + v * v;
      }
      C near[kWide<T>], far[kWide<T>];
      store_in_order<T>(near, sum), store_in_order<T>(far, square);
      RT_IVDEP
      for (int64_t l = 0; l < kWide<T>; ++l) sums[i + l] += double(near[l]), squares[i + l] += double(far[l]);
    });
}

// The mean of the first rows of a sample in each column: near the mean of all, so that no digits cancel out.
template <class T, class C> void first_means(std::vector<C>& means, const T* x, int64_t n, int64_t rows) {
  for_each_step<kWide<T>>(n, [&](int64_t i, auto left) RT_INLINE_LAMBDA {
    for (int h = 0; h < kHalves<T>; ++h) {
      Vec<C> v[kTile];
      for (int64_t r = 0; r < kTile; ++r) v[r] = load_wide(x + (rows < kTile ? 0 : r) * n + i, left).half[h];
      store(means.data() + i + h * kLanes<C>, tree_sum<kTile>(v) * (C(1) / kTile));
    }
  });
}

// The columns of channels [begin, end) as one set. The mean of equal means is exact.
Moments columns_together(const double* mean, const double* squares, const Rows& rows, int64_t begin, int64_t end) {
  const double first = mean[begin], number = double((end - begin) * rows.repeats), count = double(rows.count);
  double far = 0, own = 0, between = 0;
  const auto each = [&](const auto& f) {
    for (int64_t at = 0; at < rows.n; at += rows.channels)
      for (int64_t k = at + begin; k < at + end; ++k) f(k);
  };
  each([&](int64_t k) { far += mean[k] - first, own += squares[k]; });
  const double center = first + far / number;
  each([&](int64_t k) { between += (mean[k] - center) * (mean[k] - center); });
  return {count * number, center, own + count * between};
}

template <class T, class C>
[[gnu::noinline]] void normalize_group_row(T* y, const T* x, const C* mean, const C* scale, const C* b, int64_t n) {
  for_each_step<kWide<T>>(n, [&](int64_t i, auto left) RT_INLINE_LAMBDA {
    store_wide(
        y + i,
        (load_wide(x + i, left) - load_in_order<T>(mean + i)) * load_in_order<T>(scale + i) + load_in_order<T>(b + i),
        left);
  });
}

template <class C> C at_or(const View& v, int64_t i, C otherwise) { return v.data ? v.as<C>()[i] : otherwise; }

// The statistics of sample i, by its P[units][2][wide]: sums of distances from `from`, and of their squares.
template <class T, class C>
[[gnu::noinline]] void finish_statistics(C* statistics, const Samples& samples, int64_t i, const double* part,
                                         const std::vector<C>& from, const T* x, double eps) {
  const Rows& rows = samples.rows;
  const int64_t wide = wide_size<T>(rows.n);
  const double count = double(rows.count);
  std::vector<double> total(size_t(2 * rows.n));
  for (int64_t u = 0; u < samples.units; ++u)
    for (int64_t k = 0; k < rows.n; ++k) {
      const double* const column = part + u * 2 * wide + place_of<T>(k);
      total[size_t(k)] += column[0], total[size_t(rows.n + k)] += column[wide];
    }
  const T* const rest = x + i * samples.size + rows.rest_begin();
  for (int64_t k = 0; k < rows.n && rows.count > 0; ++k) {  // sums become means and squared distances from them
    const double far = total[size_t(k)] / count;
    total[size_t(k)] = double(from[size_t(place_of<T>(k))]) + far;
    total[size_t(rows.n + k)] = std::max(total[size_t(rows.n + k)] - count * far * far, 0.0);
  }
  for (int64_t g = 0; g < samples.groups; ++g) {
    const int64_t begin = g * samples.in_group, end = begin + samples.in_group;
    Moments all;
    if (rows.count > 0) all = columns_together(total.data(), total.data() + rows.n, rows, begin, end);
    for (int64_t c = begin; c < end; ++c)
      for (int64_t k = c; k < rows.rest; k += rows.channels) all.add(1, double(C(rest[k])), 0);
    C* const s = statistics + 2 * (i * samples.groups + g);
    s[0] = C(all.mean), s[1] = C(1 / std::sqrt(all.variance() + eps));
  }
}

}  // namespace

void group_norm_forward(View y, View statistics, View x, View w, View b, double eps) {
  if (x.size() == 0) return;
  const Samples samples(x, statistics);
  const Rows& rows = samples.rows;
  dispatch_float(x.dtype, [&]<class T>() {
    using C = compute_t<T>;
    const int64_t wide = wide_size<T>(rows.n);
    const auto first = [&](int64_t i) {
      std::vector<C> means(size_t(wide + kPack));
      if (rows.count > 0) first_means(means, x.as<T>() + i * samples.size, rows.n, rows.count);
      return means;
    };
    const auto sums = [&](int64_t i, int64_t u, double* own) RT_NO_INLINE {
      add_distances(own, x.as<T>() + samples.offset(i, u), first(i).data(), rows.n, samples.rows_of(u));
    };
    const auto finish = [&](int64_t i, const double* part) {
      finish_statistics<T, C>(statistics.as<C>(), samples, i, part, first(i), x.as<T>(), eps);
    };
    const PerColumn<T> shift(rows, [&](int64_t c) { return at_or(b, c, C(0)); });
    const auto apply = [&](int64_t i, int64_t u) RT_NO_INLINE {
      const auto s = [&](int64_t c) { return statistics.as<C>() + 2 * samples.group(i, c); };
      const PerColumn<T> center(rows, [&](int64_t c) { return s(c)[0]; });
      const PerColumn<T> scale(rows, [&](int64_t c) { return s(c)[1] * at_or(w, c, C(1)); });
      samples.for_each_row_of(i, u, [&](int64_t at, int64_t n) {
        normalize_group_row<T, C>(y.as<T>() + at, x.as<T>() + at, center, scale, shift, n);
      });
    };
    samples.run<double>(2 * wide, sums, finish, apply);
  });
}

namespace {

// dx = scale dy - shift - slope (x - mean) for a row of n elements.
template <class T, class C>
[[gnu::noinline]] void group_gradient_row(T* dx, const T* dy, const T* x, const C* mean, const C* scale, const C* shift,
                                          const C* slope, int64_t n) {
  for_each_step<kWide<T>>(n, [&](int64_t i, auto left) RT_INLINE_LAMBDA {
    const Wide<T> far = load_in_order<T>(shift + i) +
                        load_in_order<T>(slope + i) * (load_wide(x + i, left) - load_in_order<T>(mean + i));
    store_wide(dx + i, load_in_order<T>(scale + i) * load_wide(dy + i, left) - far, left);
  });
}

// The gradients of b and w of sample i (2, C), by its P[units][2][wide], and each group's shift and slope.
template <class T, class C>
[[gnu::noinline]] void finish_gradient_sums(double* total, C* terms, const Samples& samples, int64_t i, const C* part,
                                            const T* dy, const T* x, const C* statistics, const View& w) {
  const Rows& rows = samples.rows;
  const int64_t channels = samples.channels, wide = wide_size<T>(rows.n);
  const C* const s = statistics + 2 * i * samples.groups;
  for (int64_t u = 0; u < samples.units; ++u, part += 2 * wide)
    for (int64_t k = 0, c = 0; k < rows.n; ++k, c = c + 1 == channels ? 0 : c + 1)
      total[c] += double(part[place_of<T>(k)]), total[channels + c] += double(part[wide + place_of<T>(k)]);
  const int64_t rest = i * samples.size + rows.rest_begin();
  for (int64_t k = 0; k < rows.rest; ++k) {
    const int64_t c = k % channels;
    const double g = double(C(dy[rest + k])), mean = double(s[2 * samples.group_of[size_t(c)]]);
    total[c] += g;
    total[channels + c] += g * (double(C(x[rest + k])) - mean);
  }
  for (int64_t g = 0; g < samples.groups; ++g) {
    double sum = 0, dot = 0;
    const double inverse = double(s[2 * g + 1]);
    for (int64_t c = g * samples.in_group; c < (g + 1) * samples.in_group; ++c) {
      const double scale = double(at_or(w, c, C(1)));
      sum += scale * total[c], dot += scale * total[channels + c];
      total[channels + c] *= inverse;
    }
    C* const to = terms + 2 * (i * samples.groups + g);
    to[0] = C(sum / samples.per_group() * inverse);
    to[1] = C(dot / samples.per_group() * inverse * inverse * inverse);
  }
}

// The backward pass but for the sums over samples: totals (N, 2, C) of db and dw.
template <class T>
void each_sample_backward(const View& dx, std::vector<double>& totals, const View& dy, const View& x,
                          const View& statistics, const View& w) {
  using C = compute_t<T>;
  const Samples samples(x, statistics);
  const Rows& rows = samples.rows;
  const int64_t wide = wide_size<T>(rows.n);
  std::vector<C> terms(size_t(2 * samples.count * samples.groups));  // of each group: shift and slope
  const auto s = [&](int64_t i, int64_t c) { return statistics.as<C>() + 2 * samples.group(i, c); };
  const auto sums = [&](int64_t i, int64_t u, C* own) RT_NO_INLINE {
    const PerColumn<T> center(rows, [&](int64_t c) { return s(i, c)[0]; });
    const int64_t at = samples.offset(i, u);
    chunk_products<T>(own, own + wide, dy.as<T>() + at, nullptr, x.as<T>() + at, center, rows.n, samples.rows_of(u));
  };
  const auto finish = [&](int64_t i, const C* part) {
    finish_gradient_sums<T, C>(totals.data() + i * 2 * samples.channels, terms.data(), samples, i, part, dy.as<T>(),
                               x.as<T>(), statistics.as<C>(), w);
  };
  const auto apply = [&](int64_t i, int64_t u) RT_NO_INLINE {
    const auto term = [&](int64_t c) { return terms.data() + 2 * samples.group(i, c); };
    const PerColumn<T> center(rows, [&](int64_t c) { return s(i, c)[0]; });
    const PerColumn<T> scale(rows, [&](int64_t c) { return s(i, c)[1] * at_or(w, c, C(1)); });
    const PerColumn<T> shift(rows, [&](int64_t c) { return term(c)[0]; });
    const PerColumn<T> slope(rows, [&](int64_t c) { return term(c)[1]; });
    samples.for_each_row_of(i, u, [&](int64_t at, int64_t n) {
      group_gradient_row<T, C>(dx.as<T>() + at, dy.as<T>() + at, x.as<T>() + at, center, scale, shift, slope, n);
    });
  };
  samples.template run<C>(2 * wide, sums, finish, apply);
}

}  // namespace

void group_norm_backward(View dx, View dw, View db, View dy, View x, View statistics, View w) {
  dispatch_float(x.dtype, [&]<class T>() {
    using C = compute_t<T>;
    const int64_t channels = x.dims[2];
    std::vector<double> totals(size_t(x.size() > 0 ? x.dims[0] * 2 * channels : 0));
    if (x.size() > 0) each_sample_backward<T>(dx, totals, dy, x, statistics, w);
    for (int64_t c = 0; c < channels; ++c) {
      double sum = 0, dot = 0;
      for (size_t i = size_t(c); i < totals.size(); i += size_t(2 * channels))
        sum += totals[i], dot += totals[i + size_t(channels)];
      if (db.data) db.as<C>()[c] = C(sum);
      if (dw.data) dw.as<C>()[c] = C(dot);
    }
  });
}

RT_ISA_END
