#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

namespace ringtape {

// [begin, end) of part r when `count` elements are split into n parts. The first count % n parts are one longer.
struct Part {
  int64_t begin, end;
  int64_t size() const { return end - begin; }
};
inline Part part_of(int64_t count, int n, int r) {
  const int64_t q = count / n, rest = count % n;
  return {q * r + std::min<int64_t>(r, rest), q * (r + 1) + std::min<int64_t>(r + 1, rest)};
}

// At most `most` of the numbers below n, spread over all of them.
inline std::vector<int64_t> evenly(int64_t n, int64_t most) {
  std::vector<int64_t> out;
  const int64_t count = std::min(n, most);
  for (int64_t i = 0; i < count; ++i) out.push_back(i * n / count);
  return out;
}

}  // namespace ringtape
