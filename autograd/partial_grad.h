#pragma once
#include "core/tensor.h"

namespace ringtape {

// Inside a backward function: what others have given to dL/dinput number `input` until now, for this one to add its
// part to; it must return this tensor for that input then. Undefined: nothing yet, or memory that is visible elsewhere.
Tensor partial_grad(size_t input);

}  // namespace ringtape
