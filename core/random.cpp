#include "core/random.h"

#include <numeric>
#include <utility>

namespace ringtape {

std::vector<int64_t> permutation(int64_t n, uint64_t seed, Stream stream, uint64_t epoch) {
  std::vector<int64_t> order(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  for (int64_t i = n - 1; i > 0; --i) {
    // The remainder's bias is below n / 2^64.
    const Philox4 r = philox(seed, uint64_t(stream) | epoch << 8, uint64_t(i));
    const uint64_t bits = uint64_t(r.x[0]) << 32 | r.x[1];
    const auto j = bits % (uint64_t(i) + 1);
    std::swap(order[size_t(i)], order[j]);
  }
  return order;
}

}  // namespace ringtape
