#include "kernels/sort.h"

#include <algorithm>

#include "core/tensor.h"
#include "kernels/cuda/block.cuh"
#include "kernels/cuda/vector.cuh"
#include "kernels/order.h"

// Tiles of a row are sorted in shared memory. Then sorted runs are merged two by two, and become twice as long each
// time. An entry has the index of its element, so that no two are equal, and equal elements keep their order.
namespace ringtape::cuda {
namespace {

constexpr int kSortTile = 1024, kSortThreads = 256;

struct SortEntry {
  uint64_t key;
  int64_t index;
};
__device__ bool in_front(const SortEntry& a, const SortEntry& b) {
  return a.key < b.key || (a.key == b.key && a.index < b.index);
}

template <class T>
__global__ void make_entries(SortEntry* entries, const T* x, int64_t total, int64_t n, bool descending) {
  for (int64_t i = thread_in_grid(); i < total; i += threads_in_grid())
    entries[i] = {Order<T>::place(x[i], descending), i % n};
}

// Sorts a tile by Batcher's bitonic network; `tile` is a power of two. What a tile lacks is behind all others.
__global__ void __launch_bounds__(kSortThreads) sort_tiles(SortEntry* entries, int64_t n, int tile, int64_t tiles) {
  SHARED_ARRAY(SortEntry, own, [kSortTile]);
  const int64_t first = int64_t(blockIdx.x) % tiles * tile;
  const int count = int(n - first < tile ? n - first : tile);
  entries += int64_t(blockIdx.x) / tiles * n + first;
  for (int i = int(threadIdx.x); i < tile; i += int(blockDim.x))
    own[i] = i < count ? entries[i] : SortEntry{~uint64_t{0}, std::numeric_limits<int64_t>::max()};
  __syncthreads();
  for (int size = 2; size <= tile; size *= 2)
    for (int step = size / 2; step > 0; step /= 2) {
      for (int i = int(threadIdx.x); i < tile / 2; i += int(blockDim.x)) {
        const int low = i / step * 2 * step + i % step, high = low + step;
        const SortEntry a = own[low], b = own[high];
        if (in_front(b, a) == ((low & size) == 0)) own[low] = b, own[high] = a;
      }
      __syncthreads();
    }
  for (int i = int(threadIdx.x); i < count; i += int(blockDim.x)) entries[i] = own[i];
}

// Merges runs of `run` entries of each row two by two: the place of an entry is its own in its run, plus the number of
// entries of the other run that are in front of it.
__global__ void merge_runs(SortEntry* to, const SortEntry* from, int64_t total, int64_t n, int64_t run) {
  for (int64_t i = thread_in_grid(); i < total; i += threads_in_grid()) {
    const int64_t row = i / n * n, at = i - row, pair = at / (2 * run) * 2 * run;
    const int64_t middle = pair + run < n ? pair + run : n, end = middle + run < n ? middle + run : n;
    const SortEntry own = from[i];
    const int64_t other = at < middle ? middle : pair;
    int64_t low = other, high = at < middle ? end : middle;
    while (low < high) {
      const int64_t between = (low + high) / 2;
      if (in_front(from[row + between], own)) low = between + 1;
      else high = between;
    }
    to[row + (at < middle ? at : at - run) + (low - other)] = own;
  }
}

template <class U>
__global__ void write_sorted(U* values, int64_t* indices, const SortEntry* entries, const U* x, int64_t total,
                             int64_t n, int64_t k) {
  for (int64_t i = thread_in_grid(); i < total; i += threads_in_grid()) {
    const int64_t row = i / k * n, index = entries[row + i % k].index;
    indices[i] = index;
    values[i] = x[row + index];
  }
}

}  // namespace

void sort_forward(View values, View indices, View x, bool descending) {
  const int64_t rows = x.dims[0], n = x.dims[1], k = values.dims[1], total = rows * n;
  if (rows == 0 || k == 0) return;
  const Tensor first({2 * total}, DType::i64, x.device);
  const Tensor second({n > kSortTile ? 2 * total : 0}, DType::i64, x.device);
  SortEntry *entries = static_cast<SortEntry*>(View(first).data), *spare = static_cast<SortEntry*>(View(second).data);
  const Grid all = covering(x.device, total);
  dispatch(x.dtype,
           [&]<class T>() { launch<make_entries<T>>(x.device, all, entries, x.as<T>(), total, n, descending); });
  const int tile = power_of_two(n, kSortTile);
  const int64_t tiles = divide_up(n, tile);
  const unsigned threads = unsigned(std::clamp(tile / 2, kWarp, kSortThreads));
  launch<sort_tiles>(x.device, Grid{dim3(unsigned(rows * tiles)), dim3(threads)}, entries, n, tile, tiles);
  for (int64_t run = tile; run < n; run *= 2) {
    launch<merge_runs>(x.device, all, spare, entries, total, n, run);
    std::swap(entries, spare);
  }
  dispatch(x.dtype, [&]<class T>() {
    using U = bits_t<T>;
    launch<write_sorted<U>>(x.device, covering(x.device, rows * k), values.as<U>(), indices.as<int64_t>(), entries,
                            x.as<U>(), rows * k, n, k);
  });
}

}  // namespace ringtape::cuda
