#include "kernels/argmax.h"

#include <algorithm>
#include <utility>

#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/vector/scratch.h"
#include "kernels/order.h"

RT_ISA_BEGIN

namespace {

// x is divided into parts: up to kArgmaxPart elements of a row, or a strip of kBlock columns of such a number of rows.
// Which ones depends only on the shape.
constexpr int64_t kArgmaxPart = 1 << 15;

template <class T> void ranks_of(const T* x, int64_t n, bool smallest, typename Order<T>::Key* out) {
  for (int64_t i = 0; i < n; ++i) out[i] = Order<T>::rank(x[i], smallest);
}

template <class K> K largest(const K* keys, int64_t n) {
  constexpr int lanes = 16;
  K top[lanes] = {};
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes)
    for (int j = 0; j < lanes; ++j) top[j] = std::max(top[j], keys[i + j]);
  for (int j = 0; i + j < n; ++j) top[j] = std::max(top[j], keys[i + j]);
  for (int half = lanes / 2; half > 0; half /= 2)
    for (int j = 0; j < half; ++j) top[j] = std::max(top[j], top[j + half]);
  return top[0];
}

// The first of keys[0, n) that is `key`, which is among them.
template <class K> int64_t place_of(const K* keys, int64_t n, K key) {
  constexpr int64_t group = 64;
  int64_t i = 0;
  for (unsigned any = 0; i + group <= n; i += group) {
    for (int64_t j = 0; j < group; ++j) any |= keys[i + j] == key;
    if (any) break;
  }
  while (i < n && keys[i] != key) ++i;
  return i;
}

// The best of x[0, n): finds the first block that has the largest key, then the element.
template <class T, class K> void best_of_row(const T* x, int64_t n, bool smallest, K& key, int64_t& at) {
  K blocks[2][kBlock], *keys = blocks[0], *best = blocks[1];
  int64_t where = 0;
  key = 0;
  for (int64_t i = 0; i < n; i += kBlock) {
    const int64_t count = std::min(kBlock, n - i);
    ranks_of(x + i, count, smallest, keys);
    if (const K top = largest(keys, count); i == 0 || top > key) key = top, where = i, std::swap(keys, best);
  }
  at = where + place_of(best, std::min(kBlock, n - where), key);
}

// The best of each of `width` columns of n rows, `row` elements apart.
template <class T, class K>
void best_of_columns(const T* x, int64_t n, int64_t row, int64_t width, bool smallest, K* key, int64_t* at) {
  K keys[kBlock], best[kBlock] = {}, place[kBlock] = {};
  const int64_t step = width == row ? std::max<int64_t>(1, kBlock / width) : 1;  // rows that lie together
  for (int64_t i = 0; i < n; i += step) {
    const int64_t count = std::min(step, n - i);
    ranks_of(x + i * row, count * width, smallest, keys);
    for (int64_t q = 0; q < count; ++q)
      for (int64_t j = 0; j < width; ++j) {
        const bool better = keys[q * width + j] > best[j];
        best[j] = better ? keys[q * width + j] : best[j];
        place[j] = better ? K(i + q) : place[j];
      }
  }
  for (int64_t j = 0; j < width; ++j) key[j] = best[j], at[j] = int64_t(place[j]);
}

template <class T> void argmax_of(const View& index, const View& x, bool smallest) {
  using K = typename Order<T>::Key;
  const int64_t outer = x.dims[0], n = x.dims[1], row = x.dims[2];
  const int64_t width = std::min(row, kBlock), rows = kArgmaxPart / width, chunks = ceil_div(n, rows),
                strips = ceil_div(row, width);
  const Scratch<K> keys(chunks * outer * row, index.device);  // (chunks, outer, row)
  const Scratch<int64_t> places(chunks > 1 ? chunks * outer * row : 0, index.device);
  int64_t* const at = chunks > 1 ? places.data() : index.as<int64_t>();
  const int64_t grain = std::max<int64_t>(1, kGrain / (std::min(n, rows) * width));
  parallel_for(outer * chunks * strips, grain, [&](int64_t begin, int64_t end) {
    for (int64_t part = begin; part < end; ++part) {
      const int64_t o = part / (chunks * strips), c = part / strips % chunks, first = part % strips * width;
      const int64_t place = (c * outer + o) * row + first, from = c * rows, count = std::min(rows, n - from),
                    columns = std::min(width, row - first);
      const T* const data = x.as<T>() + (o * n + from) * row + first;
      if (row == 1) best_of_row(data, count, smallest, keys.data()[place], at[place]);
      else best_of_columns(data, count, row, columns, smallest, keys.data() + place, at + place);
    }
  });
  if (chunks == 1) return;
  parallel_for(outer * row, std::max<int64_t>(1, kGrain / chunks), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      int64_t best = 0;
      for (int64_t c = 1; c < chunks; ++c)
        if (keys.data()[c * outer * row + i] > keys.data()[best * outer * row + i]) best = c;
      index.as<int64_t>()[i] = best * rows + at[best * outer * row + i];
    }
  });
}

}  // namespace

void argmax_forward(View index, View x, bool smallest) {
  if (index.size() == 0) return;
  dispatch(x.dtype, [&]<class T>() { argmax_of<T>(index, x, smallest); });
}

RT_ISA_END
