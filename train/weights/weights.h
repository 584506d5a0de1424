#pragma once
#include <map>
#include <string>
#include <vector>

#include "nn/module.h"
#include "train/io/safetensors.h"

namespace ringtape {

// A view of x in the order of files: convolution weights K,R,S,C become K,C,R,S (PyTorch's OIHW); other tensors are x
// itself. It shares x's memory, so copying into it converts a file's order to ours.
Tensor in_file_order(const Tensor& x);
Shape in_file_order(const Shape& shape);

// A module's parameters and buffers, with dotted names, in the order of files.
std::vector<NamedTensor> weights_of(nn::Module& module);

// Throws Error, beginning with `what`, unless all of a tensor's numbers are finite.
void check_finite(const std::string& what, const Tensor& x);

// Copies a file's tensors into `into`, some rows at a time. Throws FormatError, before anything is changed, unless
// names, shapes and dtypes match exactly; otherwise as read_safetensors().
void load_tensors(const std::string& path, const std::vector<FileTensor>& into);

void load_weights(const std::string& path, nn::Module& module);

// The module's weights without those of the layer `last`.
std::vector<NamedTensor> backbone_of(nn::Module& module, const std::string& last);

// The tensors whose names begin with `name` and a dot, without that prefix: "fc.bias" becomes "bias" for "fc".
template <class T>  // NamedTensor, FileTensor
std::vector<T> below(const std::string& name, std::vector<T> tensors) {
  std::vector<T> out;
  for (T& t : tensors) {
    if (!t.name.starts_with(name + ".")) continue;
    t.name.erase(0, name.size() + 1);
    out.push_back(std::move(t));
  }
  return out;
}

// What load_backbone() found.
struct LoadedWeights {
  bool last_layer = false;     // whether it was loaded, too
  int64_t outputs = 0;         // of the file's last layer, if it was left out because its classes differ
  std::string prefix = {};     // in the file before all names, such as "module.encoder_q."
  bool own = true;             // a file of this project
  std::string left_out = {};   // what else a file of another program holds, for a message
  std::string resampled = {};  // positions of another grid, for a message
};

// Loads a file of any format, or a `set` in it (train/io/weights_file.h), of this project or another one
// (train/weights/names.h). The layer `last` may be absent from the file or have other classes, that is another shape,
// or `same_classes` is false: then the module's layer stays unchanged. Floating-point weights of another dtype are
// converted to the module's, a vision transformer's positions resampled to its grid. An empty `last`: the module
// has no such layer. Throws FormatError, before the module is changed, unless names, shapes and dtypes match, and as
// read_weights().
LoadedWeights load_backbone(const std::string& path, nn::Module& module, const std::string& last,
                            bool same_classes = true, const std::string& set = {});

// The same for a network that is to be used as it is then. Also warns of what is left out or resampled; throws Error if
// a number of the weights is not finite.
LoadedWeights load_whole(const std::string& path, nn::Module& module, const std::string& last,
                         const std::string& set = {});

// Whether a file of weights is one of this project, by its metadata.
bool is_own(const std::map<std::string, std::string>& metadata);

}  // namespace ringtape
