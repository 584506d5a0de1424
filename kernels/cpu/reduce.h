#pragma once
#include <vector>

#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/vector/vector.h"

// y[o] = finish(sum or max over r of map(x[o, r], p[o]), p[o]), for the axes along which y has size 1.
RT_ISA_BEGIN

// x seen as (outputs, reduced), with each set of axes coalesced and its last axis fastest.
struct ReducePlan {
  Operand outputs, reduced;  // the same data; their strides are those of the two sets of axes
  int64_t n_out = 1, n_reduced = 1;

  [[gnu::noinline]] ReducePlan(const View& y, const View& x) {
    View kept = x, gone = x;
    kept.rank = gone.rank = 0;
    for (int d = 0; d < x.rank; ++d) {
      View& side = y.dims[d] == x.dims[d] && x.dims[d] != 1 ? kept : gone;
      side.dims[side.rank] = x.dims[d];
      side.strides[side.rank++] = x.strides[d];
    }
    n_out = kept.size();
    n_reduced = gone.size();
    if (n_out > 0 && n_reduced > 0) {
      outputs = operands_of(std::array<View, 1>{kept})[0];
      reduced = operands_of(std::array<View, 1>{gone})[0];
    }
  }
  // Whether neighbouring outputs are adjacent in memory: then many are reduced at once, row by row.
  bool by_columns() const {
    const auto step = [](const Operand& o) { return o.dims[o.rank - 1] == 1 ? INT64_MAX : o.strides[o.rank - 1]; };
    return n_out > 1 && step(outputs) == 1 && step(reduced) != 1;
  }
};

// Totals of blocks are in double, so that the error of a long sum is that of a block; those of whole numbers are exact.
template <class C> using Total = std::conditional_t<std::is_same_v<C, int64_t>, int64_t, double>;

// Combines map(x[i], p) for i < n <= kBlock into one value, with four vectors of partial results.
template <class R, class C> C reduce_block(const C* x, int64_t n, C p) {
  constexpr int64_t lanes = kLanes<C>, unroll = 4;
  C mapped[kBlock];
  if constexpr (R::kMaps) {
    for (int64_t i = 0; i < n; ++i) mapped[i] = R::map(x[i], p);
    x = mapped;
  }
  Vec<C> acc[unroll];
  for (auto& a : acc) a = Vec<C>{} + R::template identity<C>();
  int64_t i = 0;
  for (; i + unroll * lanes <= n; i += unroll * lanes)
    for (int64_t u = 0; u < unroll; ++u) acc[u] = R::combine(acc[u], load(x + i + u * lanes));
  for (; i + lanes <= n; i += lanes) acc[0] = R::combine(acc[0], load(x + i));
  acc[0] = R::combine(R::combine(acc[0], acc[1]), R::combine(acc[2], acc[3]));
  C total = acc[0][0];
  for (int64_t j = 1; j < lanes; ++j) total = R::combine(total, C(acc[0][j]));
  for (; i < n; ++i) total = R::combine(total, x[i]);
  return total;
}

// Adds rows to acc one after the other; several per call, since each call reads and writes acc.
template <class R, class C, class... Rows>
RT_INLINE void add_rows_of(C* acc, int64_t n, const C* param, const Rows*... x) {
  RT_IVDEP
  for (int64_t j = 0; j < n; ++j) {
    C total = acc[j];
    ((total = R::combine(total, R::map(x[j], param[j]))), ...);
    acc[j] = total;
  }
}

// What depends on the reduction: all else is compiled once per C.
template <class C> struct Reduction {
  C identity;
  Total<C> total;  // of nothing
  Total<C> (*combine)(Total<C> a, Total<C> b);
  C (*block)(const C* x, int64_t n, C p);
  void (*add_row)(C* acc, int64_t n, const C* param, const C* const* x);
  void (*add_four_rows)(C* acc, int64_t n, const C* param, const C* const* x);
  void (*merge)(Total<C>* total, const C* acc, int64_t n);
};
template <class R, class C>
inline constexpr Reduction<C> kReduction{
    R::template identity<C>(),
    R::template identity<Total<C>>(),
    [](Total<C> a, Total<C> b) { return R::combine(a, b); },
    reduce_block<R, C>,
    [](C* acc, int64_t n, const C* param, const C* const* x) { add_rows_of<R>(acc, n, param, x[0]); },
    [](C* acc, int64_t n, const C* param, const C* const* x) { add_rows_of<R>(acc, n, param, x[0], x[1], x[2], x[3]); },
    [](Total<C>* total, const C* acc, int64_t n) {
      for (int64_t j = 0; j < n; ++j) total[j] = R::combine(total[j], Total<C>(acc[j]));
    }};

// y[i] = finish(total[i], p[i]) for n outputs; a null p stands for zeros.
template <class C> struct Finish {
  void (*run)(const void* f, C* y, const Total<C>* total, const C* p, int64_t n);
  const void* f;
  void operator()(C* y, const Total<C>* total, const C* p, int64_t n) const { run(f, y, total, p, n); }
};

template <class C>
Total<C> reduce_range(const Reduction<C>& r, const Operand& x, int64_t offset, int64_t begin, int64_t end, C p) {
  Operand here = x;
  here.data += offset * int64_t(size_of(x.dtype));
  C buffer[kBlock];
  Total<C> total = r.total;
  for (int64_t at = begin; at < end; at += kBlock) {
    const int64_t count = std::min(kBlock, end - at);
    total = r.combine(total, Total<C>(r.block(here.load(at, count, buffer), count, p)));
  }
  return total;
}

template <class F> void for_each_output(const ReducePlan& plan, int64_t begin, int64_t end, F&& f) {
  plan.outputs.for_each_run(begin, end - begin, [&](int64_t offset, int64_t step, int64_t count, int64_t at) {
    for (int64_t i = 0; i < count; ++i) f(begin + at + i, offset + i * step);
  });
}

template <class C>
void reduce_rows(const Reduction<C>& r, const ReducePlan& plan, C* y, const C* p, const Finish<C>& finish) {
  constexpr int64_t chunk = 64 * 1024;  // of one long reduction: fixed, so that threads do not change the order
  const auto param = [p](int64_t o) { return p ? p[o] : C(0); };
  const auto put = [&](int64_t o, Total<C> total) { finish(y + o, &total, p ? p + o : nullptr, 1); };
  if (plan.n_out < threads() && plan.n_reduced >= 2 * chunk) {
    const int64_t chunks = (plan.n_reduced + chunk - 1) / chunk;
    std::vector<Total<C>> part(static_cast<size_t>(chunks));
    for_each_output(plan, 0, plan.n_out, [&](int64_t o, int64_t offset) {
      parallel_for(chunks, 1, [&](int64_t begin, int64_t end) {
        for (int64_t c = begin; c < end; ++c)
          part[size_t(c)] =
              reduce_range<C>(r, plan.reduced, offset, c * chunk, std::min((c + 1) * chunk, plan.n_reduced), param(o));
      });
      Total<C> total = r.total;
      for (const Total<C> v : part) total = r.combine(total, v);
      put(o, total);
    });
    return;
  }
  parallel_for(plan.n_out, std::max<int64_t>(1, kGrain / plan.n_reduced), [&](int64_t begin, int64_t end) {
    for_each_output(plan, begin, end, [&](int64_t o, int64_t offset) {
      Total<C> total = r.total;
      for (int64_t at = 0; at < plan.n_reduced; at += chunk)
        total = r.combine(total,
                          reduce_range<C>(r, plan.reduced, offset, at, std::min(at + chunk, plan.n_reduced), param(o)));
      put(o, total);
    });
  });
}

// The outputs of a block go through the reduced elements together: runs of 16 in C.
template <class C>
void reduce_columns(const Reduction<C>& r, const ReducePlan& plan, C* y, const C* p, const Finish<C>& finish) {
  constexpr int64_t run = 16, width = 1024;
  const int64_t inner = plan.outputs.dims[plan.outputs.rank - 1], per_row = (inner + width - 1) / width;
  const int64_t rows = plan.n_out / inner;
  const int64_t grain = std::max<int64_t>(1, kGrain / (std::min(width, inner) * plan.n_reduced));
  parallel_for(rows * per_row, grain, [&](int64_t begin, int64_t end) {
    C acc[width], buffer[4][width], param[width];
    Total<C> total[width];
    for (int64_t b = begin; b < end; ++b) {
      const int64_t first = b / per_row * inner + b % per_row * width, n = std::min(width, inner - b % per_row * width);
      Operand line = plan.outputs;  // `n` neighbouring outputs; moved along the reduced axes below
      plan.outputs.for_each_run(first, 1, [&](int64_t offset, int64_t, int64_t, int64_t) {
        line.data += offset * int64_t(size_of(line.dtype));
      });
      line.rank = 1, line.dims[0] = n, line.strides[0] = 1, line.dense = true;
      char* const first_line = line.data;
      for (int64_t j = 0; j < n; ++j) total[j] = r.total, param[j] = p ? p[first + j] : C(0);
      for (int64_t at = 0; at < plan.n_reduced; at += run) {
        std::fill_n(acc, n, r.identity);
        const int64_t some = std::min(run, plan.n_reduced - at);
        plan.reduced.for_each_run(at, some, [&](int64_t offset, int64_t step, int64_t count, int64_t) {
          for (int64_t i = 0; i < count;) {
            const int64_t several = i + 4 <= count ? 4 : 1;
            const C* row[4];
            for (int64_t k = 0; k < several; ++k) {
              line.data = first_line + (offset + (i + k) * step) * int64_t(size_of(line.dtype));
              row[k] = line.load(0, n, buffer[k]);
            }
            (several == 4 ? r.add_four_rows : r.add_row)(acc, n, param, row);
            i += several;
          }
        });
        r.merge(total, acc, n);
      }
      finish(y + first, total, param, n);
    }
  });
}

template <class C>
[[gnu::noinline]] void run_reduction(const Reduction<C>& r, const ReducePlan& plan, C* y, const C* p,
                                     const Finish<C>& finish) {
  if (plan.n_out == 0) return;
  if (plan.n_reduced == 0) {
    for (int64_t o = 0; o < plan.n_out; ++o) finish(y + o, &r.total, p ? p + o : nullptr, 1);
  } else if (plan.by_columns()) {
    reduce_columns<C>(r, plan, y, p, finish);
  } else {
    reduce_rows<C>(r, plan, y, p, finish);
  }
}

// y and p (or null) have one value per output, in the order of y's elements.
template <class R, class C, class F> void reduce(const ReducePlan& plan, C* y, const C* p, const F& f) {
  const auto run = [](const void* function, C* to, const Total<C>* total, const C* param, int64_t n) {
    const F& own = *static_cast<const F*>(function);
    for (int64_t i = 0; i < n; ++i) to[i] = C(own(total[i], param ? param[i] : C(0)));
  };
  run_reduction<C>(kReduction<R, C>, plan, y, p, {run, &f});
}

RT_ISA_END
