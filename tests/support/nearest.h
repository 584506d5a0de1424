#pragma once
#include <cmath>

#include "core/tensor.h"
#include "kernels/fill.h"
#include "kernels/knn.h"

namespace ringtape::test {

struct Found {
  Tensor products, rows;
};
// The k nearest rows of the bank for each query.
inline Found find_nearest(const Tensor& queries, const Tensor& bank, int64_t k) {
  const Shape shape{queries.dim(0), k};
  Found out{Tensor(shape, DType::f32, queries.device()), Tensor(shape, DType::i64, queries.device())};
  nearest_rows(out.products, out.rows, queries, bank);
  return out;
}

// Few whole numbers, so that every sum is exact and many products are equal.
inline Tensor whole_numbers(const Shape& shape, uint64_t seed) {
  Tensor x(shape);
  fill_uniform(x, RandomState{seed, Stream::test, 0}, -3, 4);
  for (float& v : x.span<float>()) v = std::floor(v);
  return x;
}

}  // namespace ringtape::test
