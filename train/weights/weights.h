#pragma once
#include <string>

#include "nn/module.h"
#include "train/io/safetensors.h"

namespace ringtape {

// A tensor as files hold it: convolution weights K,R,S,C are seen as K,C,R,S (PyTorch's OIHW), all else is x. Shares
// x's memory, so that copying into it brings a file's order into ours.
Tensor in_file_order(const Tensor& x);

// A module's parameters and buffers, by their dotted names, in the order of files.
std::vector<NamedTensor> weights_of(nn::Module& module);

// Copies a file's tensors into these. Throws FormatError, before anything is changed, unless
// names, shapes and dtypes are exactly theirs.
void load_tensors(const std::string& path, const std::vector<NamedTensor>& into);

void load_weights(const std::string& path, nn::Module& module);

// Those that are not of the layer called `last`.
std::vector<NamedTensor> backbone_of(nn::Module& module, const std::string& last);

// Those that are below this name, by what follows it: "fc.bias" is "bias" below "fc".
std::vector<NamedTensor> below(const std::string& name, std::vector<NamedTensor> tensors);

// What became of the last layer.
struct LastLayer {
  bool loaded = false;
  int64_t outputs = 0;  // of the file's, where that is of other classes and so was left out
};

// load_weights of a file whose layer called `last` may be absent or of other classes, which it is if it has another
// shape or `same_classes` is false: the module's then stays as it is. Floating-point weights of another dtype are
// converted to the module's. Of a checkpoint of a self-supervised method, what is below "backbone" counts.
LastLayer load_backbone(const std::string& path, nn::Module& module, const std::string& last, bool same_classes = true);

}  // namespace ringtape
