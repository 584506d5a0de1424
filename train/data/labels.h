#pragma once
#include <utility>

#include "core/part.h"
#include "core/tensor.h"

namespace ringtape {

// The labels of a batch, whose images may be mixed with others.
struct Labels {
  Labels(Tensor labels) : y(std::move(labels)) {}  // NOLINT: a tensor is labels
  Labels(Tensor labels, Tensor of_others, double own_share, Tensor of_batch = {})
      : y(std::move(labels)), other(std::move(of_others)), share(own_share), scale(std::move(of_batch)) {}

  Tensor y;          // i64 (B)
  Tensor other;      // i64 (B): of the images that these are mixed with; undefined: they are not
  double share = 1;  // of y; the rest is that of `other`
  // () f64: the samples of the batch over all ranks, divided by the sum of their classes' weights; undefined: of parts
  // that are batches of their own, or without weights.
  Tensor scale;

  int64_t size() const { return y.size(); }
  const Tensor& larger() const { return other.defined() && share < 0.5 ? other : y; }  // those with the larger share
  Labels rows(const Part& part) const;
};

}  // namespace ringtape
