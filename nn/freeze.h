#pragma once
#include <functional>
#include <string>

#include "nn/module.h"

namespace ringtape::nn {

// From now on the parameters whose names `which` accepts are not trained, as after requires_grad_(False) in PyTorch: no
// gradient is computed for them, and backward() ends where only such are left. Files of weights still have them. A
// BatchNorm whose parameters are all frozen normalises by its running statistics, and leaves them as they are. Call it
// before the parameters get an optimizer.
void freeze(Module& module, const std::function<bool(const std::string& name)>& which);

}  // namespace ringtape::nn
