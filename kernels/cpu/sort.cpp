#include "kernels/sort.h"

#include <algorithm>
#include <vector>

#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/vector/scratch.h"
#include "kernels/order.h"

RT_ISA_BEGIN

namespace {

constexpr int kDigits = 256;           // of a key, in a pass over all entries
constexpr int64_t kCountedRow = 256;   // elements up to which comparing all with all is faster
constexpr int64_t kLongRow = 1 << 16;  // elements from which on a row is divided among threads

// A key with the index of its element: no two are equal, so that any way of sorting keeps the order of equal keys.
template <class K> struct SortEntry;
template <> struct SortEntry<uint32_t> {
  uint64_t word;
  static SortEntry of(uint32_t key, int64_t index) { return {uint64_t(key) << 32 | uint64_t(index)}; }
  uint32_t key() const { return uint32_t(word >> 32); }
  int64_t index() const { return int64_t(uint32_t(word)); }
  bool operator<(const SortEntry& other) const { return word < other.word; }
};
template <> struct SortEntry<uint64_t> {
  uint64_t own;
  int64_t at;
  static SortEntry of(uint64_t key, int64_t index) { return {key, index}; }
  uint64_t key() const { return own; }
  int64_t index() const { return at; }
  bool operator<(const SortEntry& other) const { return own != other.own ? own < other.own : at < other.at; }
};

// Moves a[0, n) to b in the order of one digit of the keys, and of equal digits in the order of a. `counts` has kDigits
// numbers for each of `parts`. Returns false and moves nothing if all have the same digit.
template <class E> bool sort_by_digit(const E* a, E* b, int64_t n, int shift, int64_t* counts, int64_t parts) {
  const auto digit = [shift](const E& e) { return int64_t((e.key() >> shift) & (kDigits - 1)); };
  const auto each_part = [&](const auto& f) {
    parallel_for(parts, 1, [&](int64_t begin, int64_t end) {
      for (int64_t q = begin; q < end; ++q) f(part_of(n, parts, q), counts + q * kDigits);
    });
  };
  each_part([&](Range range, int64_t* count) {
    std::fill_n(count, kDigits, 0);
    for (int64_t i = range.begin; i < range.end; ++i) ++count[digit(a[i])];
  });
  int64_t place = 0;
  for (int64_t d = 0; d < kDigits; ++d) {
    const int64_t before = place;
    for (int64_t q = 0; q < parts; ++q) place += std::exchange(counts[q * kDigits + d], place);
    if (place - before == n) return false;
  }
  each_part([&](Range range, int64_t* to) {
    for (int64_t i = range.begin; i < range.end; ++i) b[to[digit(a[i])]++] = a[i];
  });
  return true;
}

// Sorts a[0, n), which is in the order of the indices and whose keys have `bits` bits, with the help of b[0, n).
// Returns the one that has the result.
template <class E> E* sort_entries(E* a, E* b, int64_t n, int bits) {
  const int64_t parts = n < kLongRow ? 1 : parts_for(n);
  std::vector<int64_t> counts(static_cast<size_t>(parts * kDigits));
  for (int shift = 0; shift < bits; shift += 8)
    if (sort_by_digit(a, b, n, shift, counts.data(), parts)) std::swap(a, b);
  return a;
}

// place[i] = the number of keys in front of key i in the sorted row. The room of both is kCountedRow.
template <class K> void count_places(K* keys, int64_t n, K* place) {
  constexpr int64_t lanes = 16;
  std::fill(keys + n, keys + round_up(n, lanes), K(0));
  for (int64_t first = 0; first < n; first += lanes) {
    const int64_t end = std::min(first + lanes, n);
    const K* const own = keys + first;
    K count[lanes] = {};
    for (int64_t i = 0; i < first; ++i)
      for (int64_t l = 0; l < lanes; ++l) count[l] += keys[i] <= own[l];
    for (int64_t i = first; i < end; ++i)
      for (int64_t l = 0; l < lanes; ++l) count[l] += K(keys[i] < own[l]) | K(K(keys[i] == own[l]) & K(i < first + l));
    for (int64_t i = end; i < n; ++i)
      for (int64_t l = 0; l < lanes; ++l) count[l] += keys[i] < own[l];
    std::copy_n(count, lanes, place + first);
  }
}

// Collects the k first of the entries that it is given, in the order of their indices.
template <class K> struct FirstEntries {
  SortEntry<K>* kept;  // (room)
  int64_t k, room, count = 0;
  bool limited = false;
  K limit = 0;  // keys from it on are not among the first, once `limited`

  static int64_t room_for(int64_t k) { return 2 * k + 32; }

  void add(const K* keys, int64_t n, int64_t first) {
    int64_t i = 0;
    for (; i < n && !limited; ++i) put(keys[i], first + i);
    for (; i + kGroup <= n; i += kGroup)
      if (any_below(keys + i, limit)) add_each(keys + i, kGroup, first + i);
    add_each(keys + i, n - i, first + i);
  }
  void shrink() {  // to the first k
    if (count <= k) return;
    std::nth_element(kept, kept + k - 1, kept + count);
    count = k;
    limited = true;
    limit = kept[k - 1].key();
  }

 private:
  static constexpr int64_t kGroup = 32, kInserted = 32;  // so few are always in order

  static bool any_below(const K* keys, K limit) {
    K any = 0;
    for (int64_t j = 0; j < kGroup; ++j) any |= K(keys[j] < limit);
    return any;
  }
  void add_each(const K* keys, int64_t n, int64_t first) {
    for (int64_t j = 0; j < n; ++j)
      if (keys[j] < limit) put(keys[j], first + j);
  }
  void put(K key, int64_t index) {
    const SortEntry<K> entry = SortEntry<K>::of(key, index);
    if (k > kInserted) {
      kept[count++] = entry;
      if (count == room) shrink();
      return;
    }
    int64_t i = count < k ? count++ : k - 1;
    for (; i > 0 && entry < kept[i - 1]; --i) kept[i] = kept[i - 1];
    kept[i] = entry;
    limited = count == k;
    limit = kept[count - 1].key();
  }
};

// The keys of `n` elements of T from number `first` on.
template <class T>
void sort_keys(const void* x, int64_t first, int64_t n, bool descending, typename Order<T>::Key* keys) {
  const T* const from = static_cast<const T*>(x) + first;
  for (int64_t i = 0; i < n; ++i) keys[i] = Order<T>::place(from[i], descending);
}

// values[i] = x[indices[i]] for elements of `size` bytes.
void take(void* values, const void* x, size_t size, const int64_t* indices, int64_t n) {
  const auto as = [=]<class U>(U) {
    for (int64_t i = 0; i < n; ++i) static_cast<U*>(values)[i] = static_cast<const U*>(x)[indices[i]];
  };
  if (size == 1) as(uint8_t{});
  else if (size == 2) as(uint16_t{});
  else if (size == 4) as(uint32_t{});
  else as(uint64_t{});
}

// One row after the other, in the memory that it holds. K: of the keys, which sort_keys gives.
template <class K> class RowSorter {
 public:
  using Keys = void (*)(const void* x, int64_t first, int64_t n, bool descending, K* keys);

  RowSorter(const View& x, int64_t k, bool descending, Keys keys)
      : n_(x.dims[1]), k_(k), size_(size_of(x.dtype)), descending_(descending), few_(k < n_ / 8), keys_(keys),
        entries_(n_ <= kCountedRow ? 0
                 : few_            ? FirstEntries<K>::room_for(k)
                                   : 2 * n_,
                 x.device) {}

  void operator()(const char* x, char* values, int64_t* indices) const {
    if (n_ <= kCountedRow) {
      count_row(x, indices);
      return take(values, x, size_, indices, k_);
    }
    const SortEntry<K>* const sorted = few_ ? first_of(x) : all_of(x);
    parallel_for(k_, kLongRow / 4, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) indices[i] = sorted[i].index();
      take(values + begin * int64_t(size_), x, size_, indices + begin, end - begin);
    });
  }

 private:
  void count_row(const char* x, int64_t* indices) const {
    K keys[kCountedRow], place[kCountedRow];
    keys_(x, 0, n_, descending_, keys);
    count_places(keys, n_, place);
    for (int64_t i = 0; i < n_; ++i)
      if (int64_t(place[i]) < k_) indices[place[i]] = i;
  }
  // Calls f(keys, count, first) for the blocks of [begin, end).
  template <class F> void each_block(const char* x, int64_t begin, int64_t end, const F& f) const {
    K keys[kBlock];
    for (int64_t first = begin; first < end; first += kBlock) {
      const int64_t count = std::min(kBlock, end - first);
      keys_(x, first, count, descending_, keys);
      f(keys, count, first);
    }
  }
  const SortEntry<K>* all_of(const char* x) const {
    SortEntry<K>* const entries = entries_.data();
    parallel_for(n_, kLongRow / 4, [&](int64_t begin, int64_t end) {
      each_block(x, begin, end, [&](const K* keys, int64_t count, int64_t first) {
        for (int64_t i = 0; i < count; ++i) entries[first + i] = SortEntry<K>::of(keys[i], first + i);
      });
    });
    return sort_entries(entries, entries + n_, n_, 8 * int(size_));
  }
  const SortEntry<K>* first_of(const char* x) const {
    FirstEntries<K> first{entries_.data(), k_, FirstEntries<K>::room_for(k_)};
    each_block(x, 0, n_, [&](const K* keys, int64_t count, int64_t at) { first.add(keys, count, at); });
    first.shrink();
    std::sort(first.kept, first.kept + k_);  // they are in no order any more, which passes by digit would need
    return first.kept;
  }

  const int64_t n_, k_;
  const size_t size_;
  const bool descending_, few_;  // few: the first k are collected, else all are sorted
  const Keys keys_;
  const Scratch<SortEntry<K>> entries_;
};

template <class K>
void sort_rows(const View& values, const View& indices, const View& x, bool descending,
               typename RowSorter<K>::Keys keys) {
  const int64_t rows = x.dims[0], n = x.dims[1], k = values.dims[1], size = int64_t(size_of(x.dtype));
  const auto some = [&](int64_t begin, int64_t end) {
    const RowSorter<K> sort(x, k, descending, keys);
    for (int64_t r = begin; r < end; ++r)
      sort(x.as<char>() + r * n * size, values.as<char>() + r * k * size, indices.as<int64_t>() + r * k);
  };
  if (n >= kLongRow && rows < threads()) some(0, rows);  // the threads work on one row together
  else parallel_for(rows, std::max<int64_t>(1, kGrain / 8 / n), some);
}

}  // namespace

void sort_forward(View values, View indices, View x, bool descending) {
  if (values.size() == 0) return;
  dispatch(x.dtype,
           [&]<class T>() { sort_rows<typename Order<T>::Key>(values, indices, x, descending, sort_keys<T>); });
}

RT_ISA_END
