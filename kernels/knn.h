#pragma once
#include <bit>
#include <limits>

#include "kernels/kernel.h"

namespace ringtape {

// For each of queries (Q, D), its k largest dot products with the rows of bank (M, D), in descending order: values (Q,
// k) f32, and the row numbers in indices (Q, k) i64. Ties go to the lower row number; NaN counts as -infinity. All
// contiguous f32, k <= M < 2^32. Only one tile of the Q x M products is stored at a time. On a CPU each product is the
// same sum for any Q, M and number of threads. CUDA: k <= kMaxNearest; products as TF32 with Arithmetic::tf32.
RT_KERNEL(nearest_rows, void(View values, View indices, View queries, View bank));
inline constexpr int64_t kMaxNearest = 2048;  // with as many candidates they fill 32 KiB of shared memory

// A product and its row as one number: nearer rows have larger keys, and all keys differ. 0 stands for no neighbour.
struct NeighbourKey {
  RT_HD static uint64_t of(float product, int64_t row) {
    if (!(product == product)) product = -std::numeric_limits<float>::infinity();
    const uint32_t bits = std::bit_cast<uint32_t>(product + 0.0f);  // -0 becomes 0
    const uint32_t ordered = bits >> 31 ? ~bits : bits | 0x80000000u;
    return uint64_t{ordered} << 32 | (0xffffffffu - uint32_t(row));
  }
  RT_HD static float product(uint64_t key) {
    const uint32_t ordered = uint32_t(key >> 32);
    return std::bit_cast<float>(ordered >> 31 ? ordered & 0x7fffffffu : ~ordered);
  }
  RT_HD static int64_t row(uint64_t key) { return int64_t(0xffffffffu - uint32_t(key)); }
};

}  // namespace ringtape
