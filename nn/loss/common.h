#pragma once
#include <cmath>

#include "autograd/autocast.h"
#include "autograd/create.h"
#include "autograd/ops.h"
#include "autograd/tape.h"
#include "comm/parallel/ops.h"

// Shared by the losses.
namespace ringtape::nn {

// The precision of losses, independent of autocast: 16-bit values are converted to f32, f64 is kept.
inline Tensor wide(const Tensor& x) {
  return x.dtype() == DType::f16 || x.dtype() == DType::bf16 ? cast(x, DType::f32) : x;
}

// Checks two sets of embeddings with matching rows: both (n, D), n and D at least 1.
inline void check_pair(const char* loss, const Tensor& a, const Tensor& b) {
  RT_CHECK_AS(ShapeError, a.defined() && b.defined() && a.rank() == 2 && a.shape() == b.shape() && a.size() > 0, loss,
              ": expected two sets of embeddings (n, D), got ", a.defined() ? a.shape().str() : "none", " and ",
              b.defined() ? b.shape().str() : "none");
}

inline void check_temperature(const char* loss, double temperature) {
  RT_CHECK_AS(UsageError, temperature > 0 && std::isfinite(temperature), loss, ": temperature ", temperature,
              " is not above 0");
}

// Whether there are other ranks.
inline bool shared(const comm::ProcessGroup* group) { return group && group->size() > 1; }

// The sum of x (any strides) over all ranks; x itself if there is one rank.
inline Tensor sum_over(comm::ProcessGroup* group, const Tensor& x) {
  return shared(group) ? comm::all_reduce(*group, contiguous(x)) : x;
}

// All ranks' rows, in order of the ranks; x itself if there is one rank. Ranks must have equal numbers of rows.
inline Tensor rows_of(comm::ProcessGroup* group, const Tensor& x) {
  return shared(group) ? comm::all_gather(*group, contiguous(x)) : x;
}

// The off-diagonal elements of (D, D) as (D - 1, D): without the last element, in rows of D + 1, each row starts on the
// diagonal.
inline Tensor off_diagonal(const Tensor& c) {
  const int64_t d = c.dim(0);
  return slice(reshape(slice(reshape(c, {d * d}), 0, 0, d * d - 1), {d - 1, d + 1}), 1, 1, d + 1);
}

// The diagonal of (D, D) as (D).
inline Tensor diagonal(const Tensor& c) { return slice(reshape(c, {c.size()}), 0, 0, c.size(), c.dim(0) + 1); }

}  // namespace ringtape::nn
