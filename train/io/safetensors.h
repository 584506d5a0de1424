#pragma once
#include <map>
#include <string>
#include <vector>

#include "core/tensor.h"

// The safetensors format (github.com/huggingface/safetensors): u64 header size, a JSON header, the tensors' bytes,
// little-endian and row-major. It holds only numbers and texts, so a file from any source is safe to read.
namespace ringtape {

struct NamedTensor {
  std::string name;
  Tensor tensor;
};

struct Safetensors {
  std::map<std::string, std::string> metadata;
  std::vector<NamedTensor> tensors;                         // sorted by name
  const Tensor& operator[](const std::string& name) const;  // throws FormatError if there is none
};

// Writes a file atomically, with the layout of the reference implementation (widest elements first, then by name): the
// same tensors give the same bytes. If there are metadata, they get a checksum of these bytes. Tensors may have any
// device and strides. Throws IoError, or UsageError for a repeated name.
void write_safetensors(const std::string& path, const std::vector<NamedTensor>& tensors,
                       std::map<std::string, std::string> metadata = {});

// Reads a file; tensors are on cpu:0. Throws IoError if the file cannot be read; FormatError, with the reason, for what
// parse_safetensors_header (safetensors_header.h) rejects, for bytes that do not match their checksum, and for weights
// in another format, with how to convert them.
Safetensors read_safetensors(const std::string& path);

}  // namespace ringtape
