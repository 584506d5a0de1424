#include "kernels/layer_norm.h"

#include <array>
#include <cmath>

#include "kernels/cpu/vector/rows.h"
#include "kernels/cpu/vector/scratch.h"

RT_ISA_BEGIN

namespace {

// v, or `n` times `otherwise` if v has no data.
template <class C> class PerElement {
 public:
  PerElement(const View& v, int64_t n, double otherwise)
      : own_(v.data ? 0 : size_t(n), C(otherwise)), data_(v.data ? v.as<C>() : own_.data()) {}
  operator const C*() const { return data_; }

 private:
  std::vector<C> own_;
  const C* data_;
};

// N sums over a row. f(read, to) adds to to[0 .. N) what a few neighbouring elements contribute, and gets those of an
// operand p by read(p): a vector, or one at the end. Totals of blocks are in double.
template <class C, int N, class F> RT_INLINE std::array<double, N> row_totals(int64_t n, const F& f) {
  constexpr int64_t lanes = kLanes<C>, unroll = 4, block = 1024;
  std::array<double, N> total{};
  for (int64_t at = 0; at < n; at += block) {
    const int64_t end = std::min(n, at + block);
    Vec<C> sum[unroll][N] = {};
    C rest[N] = {};
    int64_t i = at;
    for (; i + unroll * lanes <= end; i += unroll * lanes)
      for (int64_t u = 0; u < unroll; ++u) f([&](const C* p) { return load(p + i + u * lanes); }, sum[u]);
    for (; i + lanes <= end; i += lanes) f([&](const C* p) { return load(p + i); }, sum[0]);
    for (; i < end; ++i) f([&](const C* p) { return p[i]; }, rest);
    for (int k = 0; k < N; ++k) {
      Vec<C> all[1] = {(sum[0][k] + sum[1][k]) + (sum[2][k] + sum[3][k])};
      total[size_t(k)] += double(lane_sums<C, 1>(all)[0] + rest[k]);
    }
  }
  return total;
}

template <class C> struct RowStatistics { C high, low, inverse; };  // the mean is high + low

template <class C> RowStatistics<C> row_statistics(const C* x, int64_t n, double eps, bool centred) {
  const C high = centred ? x[0] : C(0);
  // Distances from the first element: exact if all are equal, and no sum of large numbers.
  const auto from_first = [=](auto read, auto* to) { to[0] += read(x) - high; };
  const C low = centred ? C(row_totals<C, 1>(n, from_first)[0] / double(n)) : C(0);
  const auto square = [=](auto read, auto* to) { to[0] += ((read(x) - high) - low) * ((read(x) - high) - low); };
  return {high, low, C(1 / std::sqrt(row_totals<C, 1>(n, square)[0] / double(n) + eps))};
}

// dx of a row; adds its dy u to dw and its dy to db, unless they are null.
template <class C>
void layer_norm_row(C* dx, C* dw, C* db, const C* dy, const C* x, const C* w, int64_t n, const RowStatistics<C>& s,
                    bool centred) {
  const C high = s.high, low = s.low, inverse = s.inverse;
  const auto sums = row_totals<C, 2>(n, [=](auto read, auto* to) {
    const auto g = read(dy) * read(w);
    to[0] += g;
    to[1] += g * ((read(x) - high) - low);
  });
  const C shift = centred ? C(sums[0] / double(n)) : C(0);
  const C slope = C(sums[1] / double(n) * double(inverse));
  const auto gradient = [=](C g, C u) { return inverse * (g - shift - u * slope); };
  if (!dw) {
    RT_IVDEP
    for (int64_t i = 0; i < n; ++i) dx[i] = gradient(dy[i] * w[i], ((x[i] - high) - low) * inverse);
    return;
  }
  RT_IVDEP
  for (int64_t i = 0; i < n; ++i) {
    const C g = dy[i], u = ((x[i] - high) - low) * inverse;
    dx[i] = gradient(g * w[i], u);
    dw[i] += g * u;
    db[i] += g;
  }
}

// Rows whose sums of dw and db are added before they become part of the total: fixed by the shape.
int64_t rows_at_once(int64_t n) { return std::clamp<int64_t>(64 * 1024 / std::max<int64_t>(n, 1), 4, 256); }

}  // namespace

void layer_norm_forward(View y, View statistics, View x, View w, View b, double eps, bool centred) {
  const int64_t rows = x.dims[0], n = x.dims[1];
  if (n == 0) return;
  dispatch_float(x.dtype, [&]<class T>() {
    using C = compute_t<T>;
    const PerElement<C> scales(w, n, 1), shifts(b, n, 0);
    parallel_for(rows, std::max<int64_t>(1, kGrain / 2 / n), [&](int64_t begin, int64_t end) {
      std::vector<C> buffers(std::is_same_v<T, C> ? 0 : size_t(2 * n));
      for (int64_t r = begin; r < end; ++r) {
        const C* in = Row<T>::read(x.as<T>() + r * n, n, buffers.data());
        C* out = Row<T>::open(y.as<T>() + r * n, buffers.data() + buffers.size() / 2);
        const RowStatistics<C> s = row_statistics(in, n, eps, centred);
        C* const kept = statistics.as<C>() + 3 * r;
        kept[0] = s.high, kept[1] = s.low, kept[2] = s.inverse;
        const C high = s.high, low = s.low, inverse = s.inverse;
        const C *scale = scales, *shift = shifts;
        RT_IVDEP
        for (int64_t i = 0; i < n; ++i) out[i] = ((in[i] - high) - low) * inverse * scale[i] + shift[i];
        Row<T>::close(y.as<T>() + r * n, n, out);
      }
    });
  });
}

void layer_norm_backward(View dx, View dw, View db, View dy, View x, View statistics, View w, bool centred) {
  const int64_t rows = x.dims[0], n = x.dims[1], chunk = rows_at_once(n), chunks = ceil_div(rows, chunk);
  dispatch_float(x.dtype, [&]<class T>() {
    using C = compute_t<T>;
    const bool sums = dw.data || db.data;
    const PerElement<C> scale(w, n, 1);
    const Scratch<C> partial(sums ? chunks * 2 * n : 0, x.device);  // (chunks, 2, n)
    parallel_for(chunks, std::max<int64_t>(1, kGrain / 4 / (chunk * n + 1)), [&](int64_t begin, int64_t end) {
      std::vector<C> buffers(std::is_same_v<T, C> ? 0 : size_t(3 * n));
      const size_t third = buffers.size() / 3;
      for (int64_t c = begin; c < end; ++c) {
        C* const own = sums ? partial.data() + c * 2 * n : nullptr;
        if (sums) std::fill_n(own, 2 * n, C(0));
        for (int64_t r = c * chunk; r < std::min(rows, (c + 1) * chunk); ++r) {
          const C* g = Row<T>::read(dy.as<T>() + r * n, n, buffers.data());
          const C* v = Row<T>::read(x.as<T>() + r * n, n, buffers.data() + third);
          C* out = Row<T>::open(dx.as<T>() + r * n, buffers.data() + 2 * third);
          const C* const s = statistics.as<C>() + 3 * r;
          layer_norm_row<C>(out, own, sums ? own + n : nullptr, g, v, scale, n, {s[0], s[1], s[2]}, centred);
          Row<T>::close(dx.as<T>() + r * n, n, out);
        }
      }
    });
    if (!sums) return;
    parallel_for(2 * n, std::max<int64_t>(1, kGrain / (chunks + 1)), [&](int64_t begin, int64_t end) {
      std::vector<double> total(size_t(end - begin));
      for (int64_t c = 0; c < chunks; ++c)
        for (int64_t i = begin; i < end; ++i) total[size_t(i - begin)] += double(partial.data()[c * 2 * n + i]);
      for (int64_t i = begin; i < end; ++i) {
        const View& to = i < n ? dw : db;
        if (to.data) to.as<C>()[i < n ? i : i - n] = C(total[size_t(i - begin)]);
      }
    });
  });
}

RT_ISA_END
