#pragma once
#include <vector>

#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/vector.h"

// y[o] = finish(sum or max over r of map(x[o, r], p[o]), p[o]), for the axes along which y has size 1.
RT_ISA_BEGIN

// x seen as (outputs, reduced), with each set of axes coalesced and its last axis fastest.
struct ReducePlan {
  Operand outputs, reduced;  // the same data; their strides are those of the two sets of axes
  int64_t n_out = 1, n_reduced = 1;

  ReducePlan(const View& y, const View& x) {
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
template <class C>
using Total = std::conditional_t<std::is_same_v<C, int64_t>, int64_t, double>;

// Combines map(x[i], p) for i < n <= kBlock into one value, with four vectors of partial results.
template <class R, class C>
C reduce_block(const C* x, int64_t n, C p) {
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

template <class R, class C>
Total<C> reduce_range(const Operand& x, int64_t offset, int64_t begin, int64_t end, C p) {
  Operand here = x;
  here.data += offset * int64_t(size_of(x.dtype));
  C buffer[kBlock];
  auto total = R::template identity<Total<C>>();
  for (int64_t at = begin; at < end; at += kBlock) {
    const int64_t count = std::min(kBlock, end - at);
    total = R::combine(total, Total<C>(reduce_block<R, C>(here.load(at, count, buffer), count, p)));
  }
  return total;
}

template <class F>
void for_each_output(const ReducePlan& plan, int64_t begin, int64_t end, F&& f) {
  plan.outputs.for_each_run(begin, end - begin, [&](int64_t offset, int64_t step, int64_t count, int64_t at) {
    for (int64_t i = 0; i < count; ++i) f(begin + at + i, offset + i * step);
  });
}

template <class R, class C, class Finish>
void reduce_rows(const ReducePlan& plan, C* y, const C* p, const Finish& finish) {
  constexpr int64_t chunk = 64 * 1024;  // of one long reduction: fixed, so that threads do not change the order
  if (plan.n_out < threads() && plan.n_reduced >= 2 * chunk) {
    const int64_t chunks = (plan.n_reduced + chunk - 1) / chunk;
    std::vector<Total<C>> part(static_cast<size_t>(chunks));
    for_each_output(plan, 0, plan.n_out, [&](int64_t o, int64_t offset) {
      parallel_for(chunks, 1, [&](int64_t begin, int64_t end) {
        for (int64_t c = begin; c < end; ++c)
          part[size_t(c)] = reduce_range<R, C>(plan.reduced, offset, c * chunk,
                                               std::min((c + 1) * chunk, plan.n_reduced), p ? p[o] : C(0));
      });
      auto total = R::template identity<Total<C>>();
      for (const Total<C> v : part) total = R::combine(total, v);
      y[o] = finish(total, p ? p[o] : C(0));
    });
    return;
  }
  parallel_for(plan.n_out, std::max<int64_t>(1, kGrain / plan.n_reduced), [&](int64_t begin, int64_t end) {
    for_each_output(plan, begin, end, [&](int64_t o, int64_t offset) {
      const C param = p ? p[o] : C(0);
      auto total = R::template identity<Total<C>>();
      for (int64_t at = 0; at < plan.n_reduced; at += chunk)
        total = R::combine(total,
                           reduce_range<R, C>(plan.reduced, offset, at, std::min(at + chunk, plan.n_reduced), param));
      y[o] = finish(total, param);
    });
  });
}

// Adds rows to acc one after the other; several per call, since each call reads and writes acc.
template <class R, class C, class... Rows>
void add_rows(C* acc, int64_t n, const C* param, const Rows*... x) {
  RT_IVDEP
  for (int64_t j = 0; j < n; ++j) {
    C total = acc[j];
    ((total = R::combine(total, R::map(x[j], param[j]))), ...);
    acc[j] = total;
  }
}

// The outputs of a block go through the reduced elements together: runs of 16 in C.
template <class R, class C, class Finish>
void reduce_columns(const ReducePlan& plan, C* y, const C* p, const Finish& finish) {
  constexpr int64_t run = 16, width = 1024;
  const int64_t inner = plan.outputs.dims[plan.outputs.rank - 1], per_row = (inner + width - 1) / width;
  const int64_t rows = plan.n_out / inner;
  const int64_t grain = std::max<int64_t>(1, kGrain / (std::min(width, inner) * plan.n_reduced));
  parallel_for(rows * per_row, grain, [&](int64_t begin, int64_t end) {
    C acc[width], buffer[4][width], param[width];
    Total<C> total[width];
    for (int64_t b = begin; b < end; ++b) {
      const int64_t first = b / per_row * inner + b % per_row * width,
                    n = std::min(width, inner - b % per_row * width);
      Operand line = plan.outputs;  // `n` neighbouring outputs; moved along the reduced axes below
      plan.outputs.for_each_run(first, 1, [&](int64_t offset, int64_t, int64_t, int64_t) {
        line.data += offset * int64_t(size_of(line.dtype));
      });
      line.rank = 1, line.dims[0] = n, line.strides[0] = 1, line.dense = true;
      char* const first_line = line.data;
      for (int64_t j = 0; j < n; ++j)
        total[j] = R::template identity<Total<C>>(), param[j] = p ? p[first + j] : C(0);
      for (int64_t at = 0; at < plan.n_reduced; at += run) {
        for (int64_t j = 0; j < n; ++j) acc[j] = R::template identity<C>();
        const int64_t some = std::min(run, plan.n_reduced - at);
        plan.reduced.for_each_run(at, some, [&](int64_t offset, int64_t step, int64_t count, int64_t) {
          const auto row = [&](int64_t i, C* own_buffer) {
            line.data = first_line + (offset + i * step) * int64_t(size_of(line.dtype));
            return line.load(0, n, own_buffer);
          };
          int64_t i = 0;
          for (; i + 4 <= count; i += 4)
            add_rows<R>(acc, n, param, row(i, buffer[0]), row(i + 1, buffer[1]),
                        row(i + 2, buffer[2]), row(i + 3, buffer[3]));
          for (; i < count; ++i) add_rows<R>(acc, n, param, row(i, buffer[0]));
        });
        for (int64_t j = 0; j < n; ++j) total[j] = R::combine(total[j], Total<C>(acc[j]));
      }
      for (int64_t j = 0; j < n; ++j) y[first + j] = finish(total[j], param[j]);
    }
  });
}

// y and p (or null) have one value per output, in the order of y's elements.
template <class R, class C, class Finish>
void reduce(const ReducePlan& plan, C* y, const C* p, const Finish& finish) {
  if (plan.n_out == 0) return;
  if (plan.n_reduced == 0) {
    for (int64_t o = 0; o < plan.n_out; ++o) y[o] = finish(R::template identity<Total<C>>(), p ? p[o] : C(0));
  } else if (plan.by_columns()) {
    reduce_columns<R, C>(plan, y, p, finish);
  } else {
    reduce_rows<R, C>(plan, y, p, finish);
  }
}

RT_ISA_END
