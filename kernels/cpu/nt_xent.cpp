// Scores are computed tile by tile with the register tiles of matrix products, and used while they are in the cache.
// Threads divide the rows of x; the sums of a row depend neither on the other rows nor on the threads.
#include "kernels/nt_xent.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "kernels/cpu/gemm/gemm_pack.h"
#include "kernels/cpu/gemm/gemm_panels.h"
#include "kernels/cpu/vector/math.h"
#include "kernels/cpu/vector/rows.h"
#include "kernels/cpu/vector/scratch.h"

RT_ISA_BEGIN

namespace {

// A tile of scores, 112 x 192 floats, and its rows of x and y at 128 dimensions stay in the L2 cache.
constexpr int64_t kTileScores = 192, kBlockRows = 8 * kTileRows;
constexpr int64_t kDepth = 384;  // of a product: a panel of this depth fits into the L1 cache

// x y^T, unscaled.
template <class C> class Scores {
 public:
  static constexpr int64_t kWidth = kTileCols<C>;
  static constexpr int64_t kStride =
      kTileScores + kLanes<C>;  // an odd number of vectors, so that rows use many sets of the L1 cache

  Scores(const View& x, const View& y)
      : x_(x.as<C>()), y_(y.as<C>()), rows_(x.dims[0]), columns_(y.dims[0]), d_(x.dims[1]), device_(x.device),
        panels_(round_up(columns_, kWidth) * d_, device_) {
    parallel_for(ceil_div(columns_, kWidth), 16, [&](int64_t begin, int64_t end) {
      for (int64_t j = begin * kWidth; j < std::min(end * kWidth, columns_); j += kWidth)
        pack_panel(y_ + j * d_, d_, 1, std::min(kWidth, columns_ - j), kWidth, d_, panels_.data() + j * d_);
    });
  }

  // Calls f(rows, scratch) for blocks of rows, in parallel. scratch is for for_each_tile.
  template <class F> void for_each_block(const F& f) const {
    const int64_t tiles = ceil_div(rows_, kTileRows), each = round_up(kBlockRows * (d_ + kStride), kLanes<C>);
    const Scratch<C> scratch(parts_for(tiles) * each, device_);
    parallel_parts(tiles, [&](int64_t part, Range own) {
      const int64_t end = std::min(own.end * kTileRows, rows_);
      for (int64_t i = own.begin * kTileRows; i < end; i += kBlockRows)
        f(Range{i, std::min(i + kBlockRows, end)}, scratch.data() + part * each);
    });
  }

  // Calls f(columns, scores) for the tiles of a block of rows, from the first columns to the last. Rows of scores are
  // kStride apart.
  template <class F> void for_each_tile(Range rows, C* scratch, const F& f) const {
    C *packed = scratch, *scores = scratch + rows.size() * d_;
    pack_panel(x_ + rows.begin * d_, d_, 1, rows.size(), rows.size(), d_, packed);
    for (int64_t j = 0; j < columns_; j += kTileScores) {
      const Range columns{j, std::min(j + kTileScores, columns_)};
      for (int64_t p = 0; p == 0 || p < d_; p += kDepth) {
        PanelProduct<C> t{};
        t.m = rows.size(), t.n = columns.size(), t.k = std::min(kDepth, d_ - p);
        t.a = packed + p * rows.size(), t.a_stride = rows.size();
        t.b = panels_.data() + j * d_ + p * kWidth, t.panel_stride = d_ * kWidth, t.b_step = kWidth;
        t.add = p ? scores : nullptr, t.add_stride = kStride;
        t.c = scores, t.c_stride = kStride;
        multiply_panels(t);
      }
      f(columns, scores);
    }
  }

 private:
  const C *x_, *y_;
  int64_t rows_, columns_, d_;
  Device device_;
  Scratch<C> panels_;  // of y^T: panels of kWidth rows of y
};

// The element of `column` in a tile's row; null if it is not in the tile.
template <class C> C* find(C* row, Range columns, int64_t column) {
  return column >= columns.begin && column < columns.end ? row + (column - columns.begin) : nullptr;
}

// The sum of exp over the scores of a row. Each lane holds exp(top) sum; lanes are combined only at the end of the row.
template <class C> struct RowSum {
  static constexpr int kN = kLanes<C>;
  alignas(kVectorBytes) C top[kN], sum[kN] = {};
  C positive = 0;

  // Finite, so that a lane without scores does not subtract infinity from infinity.
  RowSum() { std::fill_n(top, kN, std::numeric_limits<C>::lowest()); }

  // n is a multiple of the vector length.
  void add(const C* s, int64_t n, C scale) {
    C before[kN], at[kN], total[kN];
    Vec<C> largest = load(top);
    store(before, largest);
    for (int64_t j = 0; j < n; j += kN) largest = max_or_nan(largest, load(s + j) * scale);
    store(at, largest), store(top, largest);
    for (int l = 0; l < kN; ++l) total[l] = sum[l] * Math::exp(before[l] - at[l]);
    for (int64_t j = 0; j < n; j += kN)
      for (int l = 0; l < kN; ++l) total[l] += Math::exp(s[j + l] * scale - at[l]);
    std::copy_n(total, kN, sum);
  }
  // The largest score, and the sum of all lanes relative to it.
  std::pair<C, C> whole() const {
    const C largest = row_max(top, kN);
    C all[kN];
    for (int l = 0; l < kN; ++l) all[l] = sum[l] * Math::exp(top[l] - largest);
    for (int half = kN / 2; half > 0; half /= 2)
      for (int l = 0; l < half; ++l) all[l] += all[l + half];
    return {largest, all[0]};
  }
};

template <class C>
void forward(const View& loss, const View& lse, const View& x, const View& y, const ViewPairs& pairs, C scale) {
  constexpr C none = -std::numeric_limits<C>::infinity();
  const Scores<C> scores(x, y);
  scores.for_each_block([&](Range rows, C* scratch) {
    RowSum<C> sums[kBlockRows];
    scores.for_each_tile(rows, scratch, [&](Range columns, C* tile) {
      const int64_t n = columns.size(), whole = round_up(n, kLanes<C>);
      for (int64_t i = 0; i < rows.size(); ++i) {
        C* s = tile + i * Scores<C>::kStride;
        std::fill(s + n, s + whole, none);
        if (C* same = find(s, columns, pairs.same(rows.begin + i))) *same = none;
        if (const C* other = find(s, columns, pairs.other(rows.begin + i))) sums[i].positive = *other * scale;
        sums[i].add(s, whole, scale);
      }
    });
    for (int64_t i = 0; i < rows.size(); ++i) {
      const auto [top, sum] = sums[i].whole();
      lse.as<C>()[rows.begin + i] = top + Math::log(sum);
      loss.as<C>()[rows.begin + i] = top - sums[i].positive + Math::log(sum);
    }
  });
}

// dx += weights y, with weights computed in place of scores.
template <class C> class Accumulation {
 public:
  static constexpr int64_t kWidth = kTileCols<C>;

  Accumulation(const View& dx, const View& y)
      : dx_(dx.as<C>()), columns_(y.dims[0]), d_(y.dims[1]), padded_(round_up(d_, kWidth)),
        panels_(columns_ * padded_, y.device) {
    parallel_for(ceil_div(columns_, kTileScores), 1, [&](int64_t begin, int64_t end) {
      for (int64_t j = begin * kTileScores; j < std::min(end * kTileScores, columns_); j += kTileScores) {
        const int64_t n = std::min(kTileScores, columns_ - j);
        for (int64_t c = 0; c < d_; c += kWidth)
          pack_panel(y.as<C>() + j * d_ + c, 1, d_, std::min(kWidth, d_ - c), kWidth, n,
                     panels_.data() + j * padded_ + c * n);
      }
    });
  }

  void add(Range rows, Range columns, const C* weights) const {
    PanelProduct<C> t{};
    t.m = rows.size(), t.n = d_, t.k = columns.size();
    t.a = weights, t.a_stride = Scores<C>::kStride, t.along_k = true;
    t.b = panels_.data() + columns.begin * padded_, t.panel_stride = columns.size() * kWidth, t.b_step = kWidth;
    t.c = dx_ + rows.begin * d_, t.c_stride = d_;
    t.add = columns.begin ? t.c : nullptr, t.add_stride = d_;
    multiply_panels(t);
  }

 private:
  C* dx_;
  int64_t columns_, d_, padded_;
  Scratch<C> panels_;  // of y: kWidth columns of the rows of a tile
};

// Replaces scores s by weights g (exp(s scale - lse) + ...).
template <class C> void weigh(C* s, int64_t n, C scale, C g, const C* x_lse, const C* y_lse) {
  if (!y_lse) {
    const C shift = *x_lse;
    for (int64_t j = 0; j < n; ++j) s[j] = g * Math::exp(s[j] * scale - shift);
  } else if (!x_lse) {
    for (int64_t j = 0; j < n; ++j) s[j] = g * Math::exp(s[j] * scale - y_lse[j]);
  } else {
    const C shift = *x_lse;
    for (int64_t j = 0; j < n; ++j) s[j] = g * (Math::exp(s[j] * scale - shift) + Math::exp(s[j] * scale - y_lse[j]));
  }
}

template <class C>
void backward(const View& dx, const View& x, const View& y, const View& x_lse, const View& y_lse, const View& dloss,
              const ViewPairs& pairs, C scale) {
  const Scores<C> scores(x, y);
  const Accumulation<C> sums(dx, y);
  const C *by_row = x_lse.as<C>(), *by_column = y_lse.as<C>();
  const C g = *dloss.as<C>() * scale / C(pairs.rows), at_other = g * C((by_row != nullptr) + (by_column != nullptr));
  scores.for_each_block([&](Range rows, C* scratch) {
    scores.for_each_tile(rows, scratch, [&](Range columns, C* tile) {
      for (int64_t i = 0; i < rows.size(); ++i) {
        C* s = tile + i * Scores<C>::kStride;
        const int64_t row = rows.begin + i;
        weigh(s, columns.size(), scale, g, by_row ? by_row + row : nullptr,
              by_column ? by_column + columns.begin : nullptr);
        if (C* same = find(s, columns, pairs.same(row))) *same = 0;
        if (C* other = find(s, columns, pairs.other(row))) *other -= at_other;
      }
      sums.add(rows, columns, tile);
    });
  });
}

}  // namespace

void nt_xent_forward(View loss, View lse, View x, View y, ViewPairs pairs, double scale) {
  dispatch_compute(x.dtype, [&]<class C>() { forward(loss, lse, x, y, pairs, C(scale)); });
}

void nt_xent_backward(View dx, View x, View y, View x_lse, View y_lse, View dloss, ViewPairs pairs, double scale) {
  dispatch_compute(x.dtype, [&]<class C>() { backward(dx, x, y, x_lse, y_lse, dloss, pairs, C(scale)); });
}

RT_ISA_END
