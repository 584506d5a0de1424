#pragma once
#include <algorithm>
#include <numeric>

#include "core/parallel.h"
#include "core/view.h"
#include "kernels/cpu/vector/isa.h"
#include "kernels/cpu/vector/scratch.h"
#include "kernels/cpu/vector/wide.h"

// Contiguous x (..., C) as rows of C channels, for kernels with values per channel.
RT_ISA_BEGIN

namespace {

// The rows of x, grouped for vectors. A vector step takes 16 elements (two bytes of mask). So a row here is the
// smallest number of rows of channels whose size is a multiple of that; the remaining ones form a shorter last row.
// Threads take chunks, whose size depends only on the shape.
constexpr int64_t kPack = 16, kTile = 16;  // elements; rows that are summed before they are added to the total
constexpr int64_t kChunk = 64 * 1024;      // elements, approximately
constexpr int64_t kLongRow = 512;          // elements that are worth a call, where no order of sums depends on them

struct Rows {
  Device device;
  int64_t channels, repeats, n, count, rest, chunk, chunks;

  explicit Rows(const View& x, int64_t at_least = 1) : device(x.device), channels(x.dims[x.rank - 1]) {
    const int64_t m = channels ? x.size() / channels : 0;
    repeats = kPack / std::gcd(channels, kPack);
    if (channels > 0) repeats *= (at_least + channels * repeats - 1) / (channels * repeats);
    n = channels * repeats;
    count = m / repeats;
    rest = m % repeats * channels;
    chunk = std::max<int64_t>(1, kChunk / (kTile * std::max<int64_t>(n, 1))) * kTile;
    chunks = (count + chunk - 1) / chunk;
  }
  int64_t rest_begin() const { return count * n; }
  int64_t chunk_begin(int64_t c) const { return c * chunk; }
  int64_t chunk_end(int64_t c) const { return std::min(count, (c + 1) * chunk); }
};

// One value per channel, repeated to the length of a row of T, in the order of lanes, with padding for loads of whole
// vectors.
template <class T> struct PerColumn {
  using C = compute_t<T>;
  Scratch<C> x;
  template <class F> PerColumn(const Rows& rows, const F& f) : x(wide_size<T>(rows.n) + kPack, rows.device) {
    const int64_t whole = rows.n / kWide<T> * kWide<T>;
    std::fill_n(x.data() + whole, wide_size<T>(rows.n) + kPack - whole, C(0));
    for (int64_t c = 0; c < rows.channels; ++c) x.data()[place_of<T>(c)] = f(c);
    for (int64_t i = rows.channels; i < rows.n; ++i) x.data()[place_of<T>(i)] = at(i - rows.channels);
  }
  C at(int64_t element) const { return x.data()[place_of<T>(element)]; }
  operator const C*() const { return x.data(); }
};

// f(first element, elements) for each row, including the shorter last one. Every thread visits its chunks in the
// reverse order of the sums, because its cache still has the last ones.
template <class F> void for_each_row(const Rows& rows, const F& f) {
  parallel_for(std::max<int64_t>(rows.chunks, 1), 1, [&](int64_t begin, int64_t end) {
    if (end >= rows.chunks && rows.rest > 0) f(rows.rest_begin(), rows.rest);
    for (int64_t c = std::min(end, rows.chunks); c-- > begin;)
      for (int64_t r = rows.chunk_begin(c); r < rows.chunk_end(c); ++r) f(r * rows.n, rows.n);
  });
}

}  // namespace

RT_ISA_END
