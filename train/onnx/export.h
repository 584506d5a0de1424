#pragma once
#include <functional>
#include <map>
#include <string>

#include "nn/module.h"

namespace ringtape::onnx {

// f of a network as a model of ONNX, in bytes: images (N, C, H, W), normalised, f32 -> (N, ...), as f(x) for x (N, H,
// W, C). The weights have their names, in the order of files. The network is run twice, with two and three images, so
// that what depends on their number is known, and must be in evaluation mode. `output`: a name for the result. Throws
// UsageError, naming the operation, if one cannot be written.
std::string model_of(nn::Module& network, const std::function<Tensor(const Tensor& x)>& f, const Shape& image,
                     const std::string& output, const std::map<std::string, std::string>& metadata);

}  // namespace ringtape::onnx
