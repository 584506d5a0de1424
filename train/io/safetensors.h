#pragma once
#include <map>
#include <string>
#include <vector>

#include "core/tensor.h"

// The safetensors format (github.com/huggingface/safetensors): u64 header size, a JSON header, the tensors'
// bytes, little-endian and row-major. Holds numbers only, so that reading a file from anywhere is safe.
namespace ringtape {

struct NamedTensor {
  std::string name;
  Tensor tensor;
};

struct Safetensors {
  std::map<std::string, std::string> metadata;
  std::vector<NamedTensor> tensors;                         // sorted by name
  const Tensor& operator[](const std::string& name) const;  // throws FormatError where there is none
};

// Written atomically, laid out as the reference implementation does (widest elements first, then by
// name): the same tensors give the same bytes. Tensors of any device and strides. Throws IoError,
// or UsageError for a repeated name.
void write_safetensors(const std::string& path, const std::vector<NamedTensor>& tensors,
                       const std::map<std::string, std::string>& metadata = {});

// Tensors on cpu:0. Throws IoError if the file cannot be read and FormatError, with the reason, for
// what parse_safetensors_header (safetensors_header.h) refuses and for files of weights in another
// format, with how to convert them.
Safetensors read_safetensors(const std::string& path);

}  // namespace ringtape
