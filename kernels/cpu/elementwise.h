#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <utility>

#include "core/parallel.h"
#include "core/view.h"
#include "kernels/cpu/vector/isa.h"
#include "kernels/layout.h"

// y[i] = f(x1[i], x2[i], ...) over views of any dtype, strides and broadcasting. Operands are converted block by block
// to the compute type C (float, double or int64_t, the type of f), unless they are already contiguous and of that type.
// So f is compiled once per C, and always runs over contiguous blocks that vectorise.
RT_ISA_BEGIN

inline constexpr int64_t kBlock = 512;        // elements; five operands in double stay within the L1 cache
inline constexpr int64_t kGrain = 32 * 1024;  // elements per thread; a second thread costs about 1 us

// One operand as seen from the coalesced output shape.
struct Operand {
  char* data;
  DType dtype;
  bool dense;     // element i is at data + i
  bool constant;  // the same element everywhere
  int rank;
  int64_t dims[kMaxRank], strides[kMaxRank];

  // Calls f(offset, step, count, at) for runs that together cover elements [begin, begin + n): `count` elements from
  // element `offset` on, `step` apart; the first one is number `at` of the block.
  template <class F> void for_each_run(int64_t begin, int64_t n, F&& f) const {
    int64_t index[kMaxRank], offset = 0, rest = begin;
    for (int d = rank - 1; d >= 0; --d) {
      index[d] = rest % dims[d];
      rest /= dims[d];
      offset += index[d] * strides[d];
    }
    const int inner = rank - 1;
    for (int64_t at = 0; at < n;) {
      const int64_t count = std::min(dims[inner] - index[inner], n - at);
      f(offset, strides[inner], count, at);
      at += count;
      offset += count * strides[inner];
      index[inner] += count;
      for (int d = inner; d > 0 && index[d] == dims[d]; --d) {  // carry
        offset += strides[d - 1] - dims[d] * strides[d];
        index[d] = 0;
        ++index[d - 1];
      }
    }
  }

  template <class C> const C* load(int64_t begin, int64_t n, C* buffer) const {
    if (dense && dtype == dtype_of<C>::value) return reinterpret_cast<const C*>(data) + begin;
    gather(begin, n, buffer);
    return buffer;
  }

  // Elements [begin, begin + n) in the compute type, and back: compiled once, in elementwise.cpp.
  template <class C> void gather(int64_t begin, int64_t n, C* buffer) const;
  template <class C> void store(int64_t begin, int64_t n, const C* buffer) const;
};

// Operand 0 is the output; the others broadcast to its shape. One to five views.
template <size_t N> std::array<Operand, N> operands_of(const std::array<View, N>& views);

// f over `n` contiguous elements of y and of each x.
template <class C> using Block = void (*)(const void* f, C* y, const C* const* x, int64_t n);

template <class C, class F, size_t... I> Block<C> block_of(std::index_sequence<I...>) {
  return [](const void* function, C* y, const C* const* x, int64_t n) {
    const F f = *static_cast<const F*>(function);  // a copy, so stores to y cannot change its captures
    const C* const in[] = {x[I]...};
    RT_IVDEP  // y is disjoint from each input or identical: f may work in place
        for (int64_t i = 0; i < n; ++i) y[i] = f(in[I][i]...);
  };
}

// Converts, and calls `block` with f; the views are y and one to four inputs. What does not depend on f is compiled
// once, in elementwise.cpp, for C of float, double and int64_t.
template <class C> void map_blocks(Block<C> block, const void* f, std::initializer_list<const View*> views);

template <class C, class F, class... Inputs> void map_as(const F& f, const View& y, const Inputs&... inputs) {
  map_blocks<C>(block_of<C, F>(std::index_sequence_for<Inputs...>{}), &f, {&y, &inputs...});
}

// Calls f.operator()<C>() for the compute type of a floating dtype.
template <class F> void dispatch_compute(DType dtype, const F& f) {
  dtype == DType::f64 ? f.template operator()<double>() : f.template operator()<float>();
}

// f must accept float and double: the compute type is that of y.
template <class F, class... Inputs> void map(const F& f, const View& y, const Inputs&... inputs) {
  dispatch_compute(y.dtype, [&]<class C>() { map_as<C>(f, y, inputs...); });
}

// f must accept int64_t, too: whole numbers and truth values are computed with it, and stored modulo 2^bits.
template <class F, class... Inputs> void map_any_dtype(const F& f, const View& y, const Inputs&... inputs) {
  if (is_float(y.dtype)) map(f, y, inputs...);
  else map_as<int64_t>(f, y, inputs...);
}

RT_ISA_END
