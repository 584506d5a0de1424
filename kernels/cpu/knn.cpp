#include "kernels/knn.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <vector>

#include "core/parallel.h"
#include "kernels/cpu/gemm/gemm_block.h"
#include "kernels/cpu/vector/scratch.h"

RT_ISA_BEGIN

namespace {

// A tile of products. Together with the packed rows of the bank, 640 with depth 384, it fills the L2 cache.
constexpr int64_t kQueries = 28 * kTileRows, kRows = kBlockN;
constexpr int64_t kKeys = 1 << 20;  // maximum for all queries of a tile: 8 MiB

// The nearest rows of one query so far. New candidates are collected unsorted, up to k of them.
struct Nearest {
  uint64_t* keys;  // (2 k)
  int64_t k, count = 0;
  float least = -std::numeric_limits<float>::infinity();  // a candidate must exceed this once there are k

  static int64_t size(int64_t k) { return 2 * k; }

  void add(const float* products, int64_t n, int64_t first_row) {
    int64_t i = 0;
    for (; i < n && count < k; ++i) put(products[i], first_row + i);
    for (; i + kGroup <= n; i += kGroup)
      if (any_above(products + i, least)) add_each(products + i, kGroup, first_row + i);
    add_each(products + i, n - i, first_row + i);
  }
  void sort() { std::sort(keys, keys + count, std::greater<>()); }

 private:
  static constexpr int kGroup = 64;

  static bool any_above(const float* products, float least) {
    unsigned any = 0;
    for (int j = 0; j < kGroup; ++j) any |= products[j] > least;
    return any;
  }
  void add_each(const float* products, int64_t n, int64_t first_row) {
    for (int64_t j = 0; j < n; ++j)
      if (products[j] > least) put(products[j], first_row + j);
  }
  void put(float product, int64_t row) {
    keys[count++] = NeighbourKey::of(product, row);
    if (count != k && count != size(k)) return;
    std::nth_element(keys, keys + k - 1, keys + count, std::greater<>());
    count = k;
    least = NeighbourKey::product(keys[k - 1]);
  }
};

void find_nearest(const View& values, const View& indices, const View& queries, const View& bank, Range rows,
                  float* products, float* packed, uint64_t* keys) {
  const int64_t k = values.dims[1], depth = queries.dims[1], size = bank.dims[0];
  std::vector<Nearest> nearest;
  for (int64_t q = 0; q < rows.size(); ++q) nearest.push_back({keys + q * Nearest::size(k), k});
  const float* const from = queries.as<const float>() + rows.begin * depth;
  for (int64_t first = 0; first < size; first += kRows) {
    const int64_t n = std::min(kRows, size - first);
    // Always defined as the product of whole tiles, of which a part is computed. So a sum does not depend on its tile.
    const Gemm<float> tile(kQueries, kRows, depth, {from, depth, 1}, {bank.as<const float>() + first * depth, 1, depth},
                           nullptr, {products, kRows, 1});
    tile.run({0, rows.size()}, {0, n}, packed);
    for (int64_t q = 0; q < rows.size(); ++q) nearest[size_t(q)].add(products + q * kRows, n, first);
  }
  for (int64_t q = 0; q < rows.size(); ++q) {
    nearest[size_t(q)].sort();
    for (int64_t i = 0; i < k; ++i) {
      const uint64_t key = nearest[size_t(q)].keys[i];
      values.as<float>()[(rows.begin + q) * k + i] = NeighbourKey::product(key);
      indices.as<int64_t>()[(rows.begin + q) * k + i] = NeighbourKey::row(key);
    }
  }
}

}  // namespace

void nearest_rows(View values, View indices, View queries, View bank) {
  const int64_t count = queries.dims[0], k = values.dims[1], depth = queries.dims[1];
  if (count == 0 || k == 0) return;
  const int64_t each =
      std::min({kQueries, ceil_div(count, int64_t(threads())), std::max<int64_t>(1, kKeys / Nearest::size(k))});
  const Gemm<float> tile(kQueries, kRows, depth, {nullptr, depth, 1}, {nullptr, 1, depth}, nullptr,
                         {nullptr, kRows, 1});
  parallel_parts(ceil_div(count, each), [&](int64_t, Range blocks) {
    const Scratch<float> products(each * kRows, values.device), packed(tile.scratch_size(), values.device);
    const Scratch<uint64_t> keys(each * Nearest::size(k), values.device);
    for (int64_t b = blocks.begin; b < blocks.end; ++b)
      find_nearest(values, indices, queries, bank, {b * each, std::min((b + 1) * each, count)}, products.data(),
                   packed.data(), keys.data());
  });
}

RT_ISA_END
