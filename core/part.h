#pragma once
#include <algorithm>
#include <cstdint>

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

}  // namespace ringtape
