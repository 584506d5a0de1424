#pragma once
#include <cmath>

#include "autograd/autocast.h"
#include "autograd/create.h"
#include "autograd/ops.h"
#include "autograd/tape.h"
#include "comm/ops.h"

// What the losses share.
namespace ringtape::nn {

// What a loss computes with, whatever autocast says: 16-bit values as f32, f64 as it is.
inline Tensor wide(const Tensor& x) {
  return x.dtype() == DType::f16 || x.dtype() == DType::bf16 ? cast(x, DType::f32) : x;
}

// Two sets of embeddings that belong together, row by row: (n, D) both, n and D at least 1.
inline void check_pair(const char* loss, const Tensor& a, const Tensor& b) {
  RT_CHECK_AS(ShapeError, a.defined() && b.defined() && a.rank() == 2 && a.shape() == b.shape() && a.size() > 0, loss,
              ": expected two sets of embeddings (n, D), got ", a.defined() ? a.shape().str() : "none", " and ",
              b.defined() ? b.shape().str() : "none");
}

inline void check_temperature(const char* loss, double temperature) {
  RT_CHECK_AS(UsageError, temperature > 0 && std::isfinite(temperature), loss, ": temperature ", temperature, " is not above 0");
}

// Whether there are other ranks.
inline bool shared(const comm::ProcessGroup* group) { return group && group->size() > 1; }

// The sum of all ranks' x, of any strides; x itself without others.
inline Tensor sum_over(comm::ProcessGroup* group, const Tensor& x) { return shared(group) ? comm::all_reduce(*group, contiguous(x)) : x; }

// All ranks' rows, rank by rank; x itself without others. Ranks must have equally many.
inline Tensor rows_of(comm::ProcessGroup* group, const Tensor& x) { return shared(group) ? comm::all_gather(*group, contiguous(x)) : x; }

// The elements of (D, D) outside its diagonal, as (D - 1, D): in rows of D + 1, the last element left out, each begins on the diagonal.
inline Tensor off_diagonal(const Tensor& c) {
  const int64_t d = c.dim(0);
  return slice(reshape(slice(reshape(c, {d * d}), 0, 0, d * d - 1), {d - 1, d + 1}), 1, 1, d + 1);
}

// The diagonal of (D, D) as (D).
inline Tensor diagonal(const Tensor& c) { return slice(reshape(c, {c.size()}), 0, 0, c.size(), c.dim(0) + 1); }

}  // namespace ringtape::nn
