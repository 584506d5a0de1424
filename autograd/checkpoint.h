#pragma once
#include <functional>

#include "core/tensor.h"

namespace ringtape {

using Section = std::function<Tensor(const Tensors& inputs)>;

// section(inputs), without keeping what its operations save for backward: backward calls the section again (once) to
// get it, and drops it when it has left the section. Gradients, and the numbers dropout draws, are exactly those of
// the plain call. The section must do the same each time and reach parameters by capture; inside another checkpoint
// it is called plainly. Chen et al., "Training deep nets with sublinear memory cost", 2016.
Tensor checkpoint(Section section, const Tensors& inputs);

// Whether this code runs in such a second call. What has effects beyond its result, such as running statistics, has had them.
bool recomputing();

}  // namespace ringtape
