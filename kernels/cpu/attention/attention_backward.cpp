// Scores are computed again from q, k and lse, transposed: rows are keys and columns queries, so that the weights are
// left operands of the gradients of k and v as they lie. A block of keys meets all tiles of queries; the sums of dk and
// dv are in the order of the queries, those of dq in the order of the keys, whoever computes them.
#include "kernels/attention.h"
#include "kernels/cpu/attention/operands.h"
#include "kernels/cpu/vector/math.h"
#include "kernels/cpu/vector/rows.h"
#include "kernels/cpu/vector/scratch.h"

RT_ISA_BEGIN

namespace {

constexpr int64_t kBlockKeys = 4 * kTileRows, kMostQueries = 256;

template <class T, class O> class Backward {
 public:
  using C = compute_t<T>;
  using Op = Operands<T, O>;

  struct Gradients {
    View q, k, v;
  };

  Backward(const Gradients& to, const View& dy, const View& y, const View& lse, const View& q, const View& k,
           const View& v, double scale, bool causal)
      : to_(to), dy_(dy), y_(y), q_(q), k_(k), v_(v), lse_(lse.as<const C>()), n_(q.dims[2]), m_(k.dims[2]),
        d_(q.dims[3]), e_(v.dims[3]), scale_(C(scale)), causal_(causal), keys_(balanced(m_, kBlockKeys, kTileRows)),
        width_(balanced(n_, kMostQueries, Op::kWidth)), stride_(width_ + kLanes<C>) {}

  void run() const {
    const int64_t heads = q_.dims[0] * q_.dims[1], blocks = ceil_div(m_, keys_), tiles = ceil_div(n_, width_);
    // Few heads: some items have blocks of keys, for dk and dv, others tiles of queries, for dq.
    const bool whole = heads >= threads();
    const int64_t key_parts = whole ? 1 : std::min<int64_t>(blocks, 2 * threads());
    const int64_t query_parts = whole ? 0 : std::min<int64_t>(tiles, 2 * threads());
    const int64_t parts = key_parts + query_parts, workers = parts_for(heads * parts);
    const Scratch<O> operands(workers * Work::operands(*this), q_.device);
    const Scratch<C> sums(workers * Work::sums(*this), q_.device);
    parallel_items(heads * parts, [&](int64_t worker, const auto& next) {
      const Work w(*this, operands.data() + worker * Work::operands(*this), sums.data() + worker * Work::sums(*this));
      for (int64_t item; (item = next()) < heads * parts;) {
        const int64_t part = item % parts;
        if (whole) run_part(item / parts, {0, blocks}, {0, tiles}, true, true, w);
        else if (part < key_parts) run_part(item / parts, part_of(blocks, key_parts, part), {0, tiles}, true, false, w);
        else run_part(item / parts, {0, blocks}, part_of(tiles, query_parts, part - key_parts), false, true, w);
      }
    });
  }

 private:
  // Memory of a thread. Of the queries of all tiles, as right operands: q and dy across (columns are queries) and along
  // (columns are dimensions). Of a block of keys: k and v as left operands, k as a right one and
  // transposed, weights and their gradients.
  struct Work {
    O *q_across, *dy_across, *q_along, *dy_along, *k, *v, *k_along, *k_transposed, *weights, *score_gradients,
        *packed_gradients;
    C *scores, *weight_gradients, *dk, *dv, *dq, *delta, *lse;

    static int64_t whole_tiles(const Backward& b) { return ceil_div(b.n_, b.width_) * b.width_; }
    static int64_t operands(const Backward& b) {
      const int64_t n = whole_tiles(b), across = Op::depth_of(b.d_) + Op::depth_of(b.e_);
      const int64_t along = round_up(b.d_, Op::kWidth) + round_up(b.e_, Op::kWidth);
      const int64_t pairs =
          Op::kPairs ? b.d_ * Op::depth_of(b.keys_) + 2 * b.keys_ * b.stride_ + Op::panels_size(b.keys_, b.width_) : 0;
      return n * (across + along) + b.keys_ * (across + round_up(b.d_, Op::kWidth)) + pairs;
    }
    static int64_t sums(const Backward& b) {
      return b.keys_ * (2 * b.stride_ + b.d_ + b.e_) + whole_tiles(b) * (b.d_ + 2);
    }

    Work(const Backward& b, O* o, C* c) {
      const auto take = [](auto*& from, int64_t n) { return std::exchange(from, from + n); };
      const int64_t n = whole_tiles(b);
      q_across = take(o, n * Op::depth_of(b.d_)), dy_across = take(o, n * Op::depth_of(b.e_));
      q_along = take(o, n * round_up(b.d_, Op::kWidth)), dy_along = take(o, n * round_up(b.e_, Op::kWidth));
      k = take(o, b.keys_ * Op::depth_of(b.d_)), v = take(o, b.keys_ * Op::depth_of(b.e_));
      k_along = take(o, Op::kPairs ? 0 : b.keys_ * round_up(b.d_, Op::kWidth));
      k_transposed = take(o, Op::kPairs ? b.d_ * Op::depth_of(b.keys_) : 0);
      weights = take(o, Op::kPairs ? b.keys_ * b.stride_ : 0);
      score_gradients = take(o, Op::kPairs ? b.keys_ * b.stride_ : 0);
      packed_gradients = o;
      scores = take(c, b.keys_ * b.stride_), weight_gradients = take(c, b.keys_ * b.stride_);
      dk = take(c, b.keys_ * b.d_), dv = take(c, b.keys_ * b.e_);
      dq = take(c, n * b.d_), delta = take(c, n), lse = c;
    }
  };

  void run_part(int64_t head, Range blocks, Range tiles, bool of_keys, bool of_queries, const Work& w) const {
    const Range queries{tiles.begin * width_, std::min(tiles.end * width_, n_)};
    pack_queries(head, queries, w);
    for (int64_t b = blocks.begin; b < blocks.end; ++b) {
      const Range keys{b * keys_, std::min((b + 1) * keys_, m_)};
      const auto k = from_row(head_of<const T>(k_, head), keys.begin);
      const LeftRows<O> left_k = Op::rows(k, keys.size(), d_, w.k);
      const LeftRows<O> left_v = Op::rows(from_row(head_of<const T>(v_, head), keys.begin), keys.size(), e_, w.v);
      LeftRows<O> k_transposed{};
      if (Op::kPairs && of_queries) k_transposed = Op::rows(k.transposed(), d_, keys.size(), w.k_transposed);
      if (!Op::kPairs && of_queries) Op::pack_panels(k, keys.size(), d_, w.k_along);
      bool first = true;
      for (int64_t i = queries.begin; i < queries.end; i += width_) {
        const Range columns{i, std::min(i + width_, queries.end)};
        if (causal_ && columns.end <= keys.begin) continue;
        differentiate(keys, columns, left_k, left_v, w);
        if (of_keys) add_to_keys(head, keys, columns, first, w);
        if (of_queries) add_to_queries(head, keys, columns, k_transposed, w);
        first = false;
      }
      if (of_keys) write_keys(head, keys, first, w);
    }
    if (of_queries) write_queries(head, queries, blocks.size() == 0, w);
  }

  // Tiles begin at i round_up(..) of each kind of panels.
  void pack_queries(int64_t head, Range queries, const Work& w) const {
    const auto q = head_of<const T>(q_, head), dy = head_of<const T>(dy_, head), y = head_of<const T>(y_, head);
    for (int64_t i = queries.begin; i < queries.end; i += width_) {
      const int64_t count = std::min(width_, queries.end - i);
      const auto q_tile = from_row(q, i), dy_tile = from_row(dy, i);
      Op::pack(q_tile.transposed(), d_, count, w.q_across + i * Op::depth_of(d_));
      Op::pack(dy_tile.transposed(), e_, count, w.dy_across + i * Op::depth_of(e_));
      Op::pack_panels(q_tile, count, d_, w.q_along + i * round_up(d_, Op::kWidth));
      Op::pack_panels(dy_tile, count, e_, w.dy_along + i * round_up(e_, Op::kWidth));
    }
    for (int64_t i = queries.begin; i < queries.end; ++i) {
      w.lse[i] = lse_[head * n_ + i] * C(kLog2e);
      w.delta[i] = dot(y.data + i * y.row_stride, y.col_stride, dy.data + i * dy.row_stride, dy.col_stride);
    }
  }

  C dot(const T* x, int64_t x_step, const T* y, int64_t y_step) const {
    if (x_step == 1 && y_step == 1) return row_sum<C>(e_, [=](int64_t c) { return C(x[c]) * C(y[c]); });
    return row_sum<C>(e_, [=](int64_t c) { return C(x[c * x_step]) * C(y[c * y_step]); });
  }

  // The weights of a tile, and the gradients of its scores.
  void differentiate(Range keys, Range queries, LeftRows<O> k, LeftRows<O> v, const Work& w) const {
    const int64_t rows = keys.size(), n = queries.size(), depth = Op::depth_of(n);
    const auto across = [&](const O* panels, int64_t features) {
      const int64_t of = Op::depth_of(features);
      return Panels<O>{panels + queries.begin * of, of * Op::kWidth, Op::kWidth};
    };
    multiply_panels(product_of<O>(rows, n, d_, k, across(w.q_across, d_), w.scores, stride_, false));
    multiply_panels(product_of<O>(rows, n, e_, v, across(w.dy_across, e_), w.weight_gradients, stride_, false));
    const C *lse = w.lse + queries.begin, *delta = w.delta + queries.begin;
    for (int64_t j = 0; j < rows; ++j) {
      C *const s = w.scores + j * stride_, *const g = w.weight_gradients + j * stride_;
      const int64_t first = causal_ ? std::clamp<int64_t>(keys.begin + j - queries.begin, 0, n) : 0;
      std::fill_n(s, first, C(0)), std::fill_n(g, first, C(0));
      if (depth > n) s[n] = g[n] = C(0);
      weigh(s + first, g + first, lse + first, delta + first, n - first);
    }
    if constexpr (Op::kPairs) {
      round_sums(rows, depth, w.scores, stride_, w.weights, stride_);
      round_sums(rows, depth, w.weight_gradients, stride_, w.score_gradients, stride_);
    }
  }

  void weigh(C* s, C* g, const C* lse, const C* delta, int64_t n) const {
    const C scale = scale_, factor = C(scale_ * kLog2e);
    RT_IVDEP
    for (int64_t i = 0; i < n; ++i) {
      const C power = s[i] * factor - lse[i];
      const C p = Math::exp2_falling(power > 0 ? C(0) : power);  // above 0 by rounding alone
      s[i] = p, g[i] = p * (g[i] - delta[i]) * scale;
    }
  }

  LeftRows<O> weights(const Work& w) const {
    if constexpr (Op::kPairs) return {w.weights, stride_};
    else return {w.scores, stride_};
  }
  LeftRows<O> score_gradients(const Work& w) const {
    if constexpr (Op::kPairs) return {w.score_gradients, stride_};
    else return {w.weight_gradients, stride_};
  }

  void add_to_keys(int64_t head, Range keys, Range queries, bool first, const Work& w) const {
    const int64_t rows = keys.size(), n = queries.size();
    const auto along = [&](const View& x, int64_t features, O* packed) {
      return Op::panels(from_row(head_of<const T>(x, head), queries.begin), n, features,
                        packed + queries.begin * round_up(features, Op::kWidth));
    };
    multiply_panels(product_of<O>(rows, d_, n, score_gradients(w), along(q_, d_, w.q_along), w.dk, d_, !first));
    multiply_panels(product_of<O>(rows, e_, n, weights(w), along(dy_, e_, w.dy_along), w.dv, e_, !first));
  }

  // dq (N, D) += dS k; of pairs, whose left operands are along the depth, dq^T (D, N) += k^T dS^T.
  void add_to_queries(int64_t head, Range keys, Range queries, LeftRows<O> k_transposed, const Work& w) const {
    const int64_t rows = keys.size(), n = queries.size();
    const bool add = keys.begin > 0;
    if constexpr (Op::kPairs) {
      Op::pack({w.score_gradients, stride_, 1}, rows, n, w.packed_gradients);
      const Panels<O> gradients{w.packed_gradients, Op::depth_of(rows) * Op::kWidth, Op::kWidth};
      const int64_t stride = Work::whole_tiles(*this);
      multiply_panels(product_of<O>(d_, n, rows, k_transposed, gradients, w.dq + queries.begin, stride, add));
    } else {
      const auto k = from_row(head_of<const T>(k_, head), keys.begin);
      PanelProduct<O> t = product_of<O>(n, d_, rows, {w.weight_gradients, stride_}, Op::panels(k, rows, d_, w.k_along),
                                        w.dq + queries.begin * d_, d_, add);
      t.along_k = false;
      multiply_panels(t);
    }
  }

  void write_keys(int64_t head, Range keys, bool none, const Work& w) const {
    const auto dk = head_of<T>(to_.k, head), dv = head_of<T>(to_.v, head);
    if (none) std::fill_n(w.dk, keys.size() * d_, C(0)), std::fill_n(w.dv, keys.size() * e_, C(0));
    for (int64_t j = 0; j < keys.size(); ++j) {
      write_row(w.dk + j * d_, d_, C(1), dk.data + (keys.begin + j) * dk.row_stride, dk.col_stride);
      write_row(w.dv + j * e_, e_, C(1), dv.data + (keys.begin + j) * dv.row_stride, dv.col_stride);
    }
  }

  void write_queries(int64_t head, Range queries, bool none, const Work& w) const {
    const auto dq = head_of<T>(to_.q, head);
    const int64_t stride = Work::whole_tiles(*this);
    for (int64_t i = queries.begin; i < queries.end; i += keys_) {
      const int64_t count = std::min(keys_, queries.end - i);
      C* rows = w.dq + i * d_;
      if constexpr (Op::kPairs) pack_cols(w.dq + i, stride, d_, d_, count, rows = w.dk);
      if (none) std::fill_n(rows, count * d_, C(0));
      for (int64_t r = 0; r < count; ++r)
        write_row(rows + r * d_, d_, C(1), dq.data + (i + r) * dq.row_stride, dq.col_stride);
    }
  }

  Gradients to_;
  View dy_, y_, q_, k_, v_;
  const C* lse_;
  int64_t n_, m_, d_, e_;
  C scale_;
  bool causal_;
  int64_t keys_, width_, stride_;  // keys of a block, queries of a tile, the distance of a tile's rows
};

}  // namespace

void attention_backward(View dq, View dk, View dv, View dy, View y, View lse, View q, View k, View v, double scale,
                        bool causal) {
  attention_products(q.dtype, [&]<class T, class O>() {
    Backward<T, O>({dq, dk, dv}, dy, y, lse, q, k, v, scale, causal).run();
  });
}

RT_ISA_END
