#pragma once
#include <algorithm>

#include "core/dtype.h"
#include "core/parallel.h"
#include "kernels/cpu/vector/isa.h"

RT_ISA_BEGIN

namespace {

// to[i] = the sum of partials[q size + i] for q < count, in the order of q.
template <class T> void add_partials(const compute_t<T>* partials, int64_t count, int64_t size, T* to) {
  parallel_for(size, 1 << 13, [&](int64_t begin, int64_t end) {
    constexpr int64_t block = 512;
    for (int64_t i = begin; i < end; i += block) {
      compute_t<T> sum[block] = {};
      const int64_t n = std::min(block, end - i);
      for (int64_t q = 0; q < count; ++q)
        for (int64_t j = 0; j < n; ++j) sum[j] += partials[q * size + i + j];
      for (int64_t j = 0; j < n; ++j) to[i + j] = T(sum[j]);
    }
  });
}

}  // namespace

RT_ISA_END
