#pragma once
#include "core/tensor.h"

// Writes into existing tensors. Not differentiable: x must be outside the graph, or a leaf inside NoGrad (as in
// optimizers). Writes are counted, so that a backward pass that needs the old values throws.
namespace ringtape {

const Tensor& fill_(const Tensor& x, double value);
const Tensor& copy_(const Tensor& x, const Tensor& from);                // `from` broadcasts; converts the dtype
const Tensor& add_(const Tensor& x, const Tensor& y, double scale = 1);  // x += scale y
const Tensor& mul_(const Tensor& x, double factor);
const Tensor& l2_normalize_(const Tensor& x, double eps = 1e-12);  // along the last axis; contiguous

// averages[i] = decay averages[i] + (1 - decay) xs[i], f32 or f64, contiguous; the two have the same shape and dtype.
// Pairs that follow each other in memory without a gap in both lists are processed in one pass.
void average_(const Tensors& averages, const Tensors& xs, double decay);

}  // namespace ringtape
