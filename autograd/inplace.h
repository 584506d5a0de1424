#pragma once
#include "core/tensor.h"

// Writing into a tensor that exists. Not differentiable: x must be outside the graph, or a leaf inside NoGrad (what
// optimizers do). Every write is counted, so that a backward pass that needs the old values says so.
namespace ringtape {

const Tensor& fill_(const Tensor& x, double value);
const Tensor& copy_(const Tensor& x, const Tensor& from);               // `from` broadcasts; converts the dtype
const Tensor& add_(const Tensor& x, const Tensor& y, double scale = 1); // x += scale y
const Tensor& mul_(const Tensor& x, double factor);

// averages[i] = decay averages[i] + (1 - decay) xs[i], f32 or f64, contiguous, of one shape and dtype each. Neighbours that lie in both
// lists one behind the other, with the same distance between them, are taken in one pass, and what is between them with them.
void average_(const Tensors& averages, const Tensors& xs, double decay);

}  // namespace ringtape
