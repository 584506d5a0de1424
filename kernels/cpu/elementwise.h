#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include "core/parallel.h"
#include "core/view.h"
#include "kernels/cpu/isa.h"
#include "kernels/layout.h"

// y[i] = f(x1[i], x2[i], ...) over views of any dtype, strides and broadcasting. Operands are converted block by block
// to the compute type C (float, double or int64_t, the type of f), unless they are already contiguous and of that type.
// So f is compiled once per C, and always runs over contiguous blocks that vectorise.
RT_ISA_BEGIN

inline constexpr int64_t kBlock = 512;          // elements; five operands in double stay within the L1 cache
inline constexpr int64_t kGrain = 32 * 1024;    // elements per thread; a second thread costs about 1 us

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
  template <class F>
  void for_each_run(int64_t begin, int64_t n, F&& f) const {
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

  template <class C>
  const C* load(int64_t begin, int64_t n, C* buffer) const {
    if (dense && dtype == dtype_of<C>::value) return reinterpret_cast<const C*>(data) + begin;
    dispatch(dtype, [&]<class T>() {
      const T* from = reinterpret_cast<const T*>(data);
      const auto convert = [](T x) { return static_cast<C>(static_cast<compute_t<T>>(x)); };
      for_each_run(begin, n, [&](int64_t offset, int64_t step, int64_t count, int64_t at) {
        C* to = buffer + at;
        const T* run = from + offset;
        if (step == 1) for (int64_t i = 0; i < count; ++i) to[i] = convert(run[i]);
        else if (step == 0) std::fill_n(to, count, convert(*run));
        else for (int64_t i = 0; i < count; ++i) to[i] = convert(run[i * step]);
      });
    });
    return buffer;
  }

  template <class C>
  void store(int64_t begin, int64_t n, const C* buffer) const {
    dispatch(dtype, [&]<class T>() {
      T* to = reinterpret_cast<T*>(data);
      for_each_run(begin, n, [&](int64_t offset, int64_t step, int64_t count, int64_t at) {
        T* run = to + offset;
        if (step == 1)
          for (int64_t i = 0; i < count; ++i) run[i] = static_cast<T>(static_cast<compute_t<T>>(buffer[at + i]));
        else
          for (int64_t i = 0; i < count; ++i) run[i * step] = static_cast<T>(static_cast<compute_t<T>>(buffer[at + i]));
      });
    });
  }
};

// Operand 0 is the output; the others broadcast to its shape.
template <size_t N>
std::array<Operand, N> operands_of(const std::array<View, N>& views) {
  const Layout<N> layout = coalesce(views);
  std::array<Operand, N> out;
  for (size_t k = 0; k < N; ++k) {
    Operand& o = out[k];
    o.data = static_cast<char*>(views[k].data);
    o.dtype = views[k].dtype;
    o.dense = layout.dense(k);
    o.constant = layout.constant(k);
    o.rank = layout.rank;
    std::copy_n(layout.dims, o.rank, o.dims);
    std::copy_n(layout.strides[k], o.rank, o.strides);
  }
  return out;
}

// f over `n` contiguous elements of y and of each x.
template <class C>
using Block = void (*)(const void* f, C* y, const C* const* x, int64_t n);

template <class C, class F, size_t... I>
Block<C> block_of(std::index_sequence<I...>) {
  return [](const void* function, C* y, const C* const* x, int64_t n) {
    const F f = *static_cast<const F*>(function);  // a copy, so stores to y cannot change its captures
    const C* const in[] = {x[I]...};
    RT_IVDEP  // y is disjoint from each input or identical: f may work in place
    for (int64_t i = 0; i < n; ++i) y[i] = f(in[I][i]...);
  };
}

// Converts, and calls `block` with f; the views are y and the inputs. What does not depend on f is compiled once, in
// elementwise.cpp, for C of float, double and int64_t and two to five views.
template <class C, size_t N>
void map_blocks(Block<C> block, const void* f, const std::array<View, N>& views);

template <class C, class F, class... Inputs>
void map_as(const F& f, const View& y, const Inputs&... inputs) {
  map_blocks<C>(block_of<C, F>(std::index_sequence_for<Inputs...>{}), &f,
                std::array<View, 1 + sizeof...(inputs)>{y, inputs...});
}

// f must accept float and double: the compute type is that of y.
template <class F, class... Inputs>
void map(const F& f, const View& y, const Inputs&... inputs) {
  if (y.dtype == DType::f64) map_as<double>(f, y, inputs...);
  else map_as<float>(f, y, inputs...);
}

// f must accept int64_t, too: whole numbers and truth values are computed with it, and stored modulo 2^bits.
template <class F, class... Inputs>
void map_any_dtype(const F& f, const View& y, const Inputs&... inputs) {
  if (is_float(y.dtype)) map(f, y, inputs...);
  else map_as<int64_t>(f, y, inputs...);
}

RT_ISA_END
