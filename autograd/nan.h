#pragma once
#include <string>

#include "core/tensor.h"

namespace ringtape {

// Throws AutogradError naming `what` if a floating-point x holds a NaN (not for infinities). For RINGTAPE_NAN=1: it
// waits for the device and reads every element.
void find_nan(const Tensor& x, const std::string& what);

}  // namespace ringtape
