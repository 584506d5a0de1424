#pragma once
#include <map>
#include <string>
#include <vector>

#include "train/io/pickle.h"
#include "train/io/safetensors_header.h"

namespace ringtape {

inline constexpr size_t kMaxPickledTensors = 200'000;

// Numbers that a file of PyTorch holds apart from its pickle: `count` of them, or bytes if the dtype is unknown.
struct PickledStorage {
  std::string key, type;  // "torch.FloatStorage"
  uint64_t count = 0;
};

// A tensor in a pickle: a window of a storage.
struct PickledTensor {
  TensorEntry entry = {};  // begin and end are not used
  PickledStorage storage = {};
  uint64_t offset = 0;  // in elements
  std::vector<uint64_t> strides = {};
};

// The size of an element of a storage in bytes; 1 for those of bytes. Throws FormatError for an unknown type.
size_t element_bytes(const PickledStorage& storage, const std::string& path);

// The storages that the pickle names, by their keys.
std::map<std::string, PickledStorage> storages_of(const Pickle& pickle, const std::string& path);

// The tensors of the state_dict in the pickle, sorted by name; pytorch_file.h says which that is. Each lies within its
// storage, as the pickle declares it, and needs no more bytes than it has; one that cannot be read has the reason in
// entry.problem. `beside` gets the names of other sets of weights, such as averages. `set`: those of the member of
// that name instead, or those whose names begin with it. Throws FormatError, beginning with `path`.
std::vector<PickledTensor> tensors_of(const Pickle& pickle, const std::string& path, const std::string& set,
                                      std::vector<std::string>& beside);

}  // namespace ringtape
