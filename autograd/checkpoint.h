#pragma once
#include <functional>

#include "core/tensor.h"

namespace ringtape {

using Section = std::function<Tensor(const Tensors& inputs)>;

// Returns section(inputs) without keeping what its operations save for backward. Backward calls the section once more
// to compute it, and drops it after leaving the section. Gradients and the numbers of dropout are exactly those of the
// plain call. The section must do the same each time and reach parameters by capture. Inside another checkpoint it is
// called plainly. Chen et al., "Training deep nets with sublinear memory cost", 2016.
Tensor checkpoint(Section section, const Tensors& inputs);

// Whether this code runs in such a second call. Side effects, such as updates of running statistics, must then be
// skipped.
bool recomputing();

}  // namespace ringtape
