// As FlashAttention (Dao 2022): a block of queries meets one tile of keys after the other, and rescales what it has
// summed when a larger score comes. Threads divide heads and blocks of queries; a row depends on neither.
#include "kernels/attention.h"

#include <limits>

#include "kernels/cpu/attention/operands.h"
#include "kernels/cpu/vector/math.h"
#include "kernels/cpu/vector/rows.h"
#include "kernels/cpu/vector/scratch.h"

RT_ISA_BEGIN

namespace {

// Scores of a tile, 112 x 256 floats, and its keys and values at 64 dimensions stay in the L2 cache.
constexpr int64_t kBlockRows = 2 * kTileRows, kMostKeys = 256;
// Of a row's scores, on every processor: loops over fewer are unrolled, and not vectorised.
constexpr int kAtOnce = 16;

template <class T, class O> class Forward {
 public:
  using C = compute_t<T>;
  using Op = Operands<T, O>;

  Forward(const View& y, const View& lse, const View& q, const View& k, const View& v, double scale, bool causal)
      : y_(y), q_(q), k_(k), v_(v), lse_(lse.as<C>()), n_(q.dims[2]), m_(k.dims[2]), d_(q.dims[3]), e_(v.dims[3]),
        factor_(C(scale * kLog2e)), causal_(causal), width_(balanced(m_, kMostKeys, Op::kWidth)),
        stride_(round_up(width_, kAtOnce) + kLanes<C>) {}

  void run() const {
    const int64_t heads = q_.dims[0] * q_.dims[1], blocks = ceil_div(n_, kBlockRows);
    const int64_t parts = std::clamp<int64_t>(ceil_div(4 * threads(), std::max<int64_t>(heads, 1)), 1, blocks);
    const int64_t operands = Op::panels_size(d_, m_) + value_size() + kBlockRows * (Op::depth_of(d_) + stride_);
    const int64_t sums = kBlockRows * (stride_ + e_ + 2);
    const int64_t workers = parts_for(heads * parts);
    const Scratch<O> all_operands(workers * operands, q_.device);
    const Scratch<C> all_sums(workers * sums, q_.device);
    parallel_items(heads * parts, [&](int64_t worker, const auto& next) {
      for (int64_t item; (item = next()) < heads * parts;) {
        const Range own = part_of(blocks, parts, item % parts);
        head(item / parts, {own.begin * kBlockRows, std::min(own.end * kBlockRows, n_)},
             all_operands.data() + worker * operands, all_sums.data() + worker * sums);
      }
    });
  }

 private:
  struct Work {  // of a thread
    O *keys, *values, *queries, *weights;
    C *scores, *sums, *top, *total;
  };

  int64_t value_size() const { return Op::depth_of(m_) * round_up(e_, Op::kWidth); }
  // Where the panels of a tile's values begin.
  int64_t values_at(int64_t key) const { return key * round_up(e_, Op::kWidth); }

  void head(int64_t head, Range rows, O* operands, C* sums) const {
    Work w;
    w.keys = operands, w.values = w.keys + Op::panels_size(d_, m_), w.queries = w.values + value_size();
    w.weights = w.queries + kBlockRows * Op::depth_of(d_);
    w.scores = sums, w.sums = w.scores + kBlockRows * stride_, w.top = w.sums + kBlockRows * e_;
    w.total = w.top + kBlockRows;
    const auto k = head_of<const T>(k_, head), v = head_of<const T>(v_, head);
    const int64_t keys = causal_ ? std::min(m_, rows.end) : m_;
    Op::pack(k.transposed(), d_, keys, w.keys);
    for (int64_t j = 0; j < keys; j += width_)
      Op::pack_panels(from_row(v, j), std::min(width_, m_ - j), e_, w.values + values_at(j));
    for (int64_t i = rows.begin; i < rows.end; i += kBlockRows) block(head, {i, std::min(i + kBlockRows, rows.end)}, w);
  }

  void block(int64_t head, Range rows, const Work& w) const {
    const auto q = head_of<const T>(q_, head);
    const LeftRows<O> queries = Op::rows(from_row(q, rows.begin), rows.size(), d_, w.queries);
    std::fill_n(w.top, rows.size(), -std::numeric_limits<C>::infinity());
    std::fill_n(w.total, rows.size(), C(0));
    const int64_t keys = causal_ ? std::min(m_, rows.end) : m_;
    for (int64_t j = 0; j < keys; j += width_) {
      const Range columns{j, std::min(j + width_, keys)};
      score(rows, columns, queries, w);
      weigh(rows, columns, w);
      add_values(head, rows, columns, w);
    }
    const auto y = head_of<T>(y_, head);
    for (int64_t i = 0; i < rows.size(); ++i) {
      const C total = w.total[i];
      if (m_ == 0) std::fill_n(w.sums + i * e_, e_, C(0));
      write_row(w.sums + i * e_, e_, m_ == 0 ? C(0) : 1 / total, y.data + (rows.begin + i) * y.row_stride,
                y.col_stride);
      lse_[head * n_ + rows.begin + i] = (w.top[i] * factor_ + Math::log2(total)) / C(kLog2e);
    }
  }

  void score(Range rows, Range columns, LeftRows<O> queries, const Work& w) const {
    const int64_t depth = Op::depth_of(d_);
    const Panels<O> keys{w.keys + columns.begin * depth, depth * Op::kWidth, Op::kWidth};
    multiply_panels(product_of<O>(rows.size(), columns.size(), d_, queries, keys, w.scores, stride_, false));
  }

  // Scores become powers of two, relative to the largest of the row so far, and so do the sums of before. A NaN is in
  // no maximum, but in the sum.
  void weigh(Range rows, Range columns, const Work& w) const {
    const int64_t n = columns.size(), whole = round_up(n, kAtOnce);
    for (int64_t i = 0; i < rows.size(); ++i) {
      C* const s = w.scores + i * stride_;
      const int64_t seen = causal_ ? std::clamp<int64_t>(rows.begin + i + 1 - columns.begin, 0, n) : n;
      std::fill(s + seen, s + whole, -std::numeric_limits<C>::infinity());
      const C before = w.top[i], top = std::max(before, largest(s, whole));
      const C shrunk = columns.begin ? Math::exp2_falling((before - top) * factor_) : C(0);
      w.total[i] = w.total[i] * shrunk + powers(s, whole, top);
      w.top[i] = top;
      if (columns.begin && shrunk != 1)
        for (int64_t c = 0; c < e_; ++c) w.sums[i * e_ + c] *= shrunk;
    }
    if constexpr (Op::kPairs) round_sums(rows.size(), Op::depth_of(n), w.scores, stride_, w.weights, stride_);
  }

  // Of n numbers, a multiple of the vector length.
  static C largest(const C* s, int64_t n) {
    Vec<C> top = load(s);
    for (int64_t j = kLanes<C>; j < n; j += kLanes<C>) {
      const Vec<C> x = load(s + j);
      top = x > top ? x : top;
    }
    C one = top[0];
    for (int l = 1; l < kLanes<C>; ++l) one = std::max(one, C(top[l]));
    return one;
  }
  C powers(C* s, int64_t n, C top) const {
    const C factor = factor_;
    return row_sum<C>(n, [=](int64_t j) { return s[j] = Math::exp2_falling((s[j] - top) * factor); });
  }

  void add_values(int64_t head, Range rows, Range columns, const Work& w) const {
    const Panels<O> values = Op::panels(from_row(head_of<const T>(v_, head), columns.begin),
                                        std::min(width_, m_ - columns.begin), e_, w.values + values_at(columns.begin));
    LeftRows<O> weights{w.weights, stride_};
    if constexpr (!Op::kPairs) weights.data = w.scores;
    multiply_panels(product_of<O>(rows.size(), e_, columns.size(), weights, values, w.sums, e_, columns.begin > 0));
  }

  View y_, q_, k_, v_;
  C* lse_;
  int64_t n_, m_, d_, e_;
  C factor_;  // of the scores, whose weights are powers of two
  bool causal_;
  int64_t width_, stride_;  // keys of a tile; the distance of its rows: an odd number of vectors, for many cache sets
};

}  // namespace

void attention_forward(View y, View lse, View q, View k, View v, double scale, bool causal) {
  attention_products(q.dtype, [&]<class T, class O>() { Forward<T, O>(y, lse, q, k, v, scale, causal).run(); });
}

RT_ISA_END
