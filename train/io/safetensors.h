#pragma once
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "core/part.h"
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

// A tensor that is written and read some rows of its first axis at a time; without axes, it is one row.
struct FileTensor {
  std::string name;
  Shape shape;
  DType dtype;
  std::function<Tensor(Part rows)> get;                 // (rows.size(), ...); of any device and strides
  std::function<void(Part rows, const Tensor& x)> put;  // x (rows.size(), ...) on cpu:0

  FileTensor(std::string name, const Shape& shape, DType dtype) : name(std::move(name)), shape(shape), dtype(dtype) {}
  FileTensor(const NamedTensor& whole);  // its view
  int64_t rows() const { return shape.rank() == 0 ? 1 : shape[0]; }
  int64_t rows_at_once() const;  // as many as have 16 MiB, at least one
};
std::vector<FileTensor> file_tensors(const std::vector<NamedTensor>& tensors);

// x on cpu:0, contiguous: a copy if it is not so already.
Tensor contiguous_on_host(const Tensor& x);
// Throws FormatError if a tensor of a file, contiguous on cpu:0, is of truth values and has other bytes than 0 and 1.
void check_bools(const std::string& path, const std::string& name, const Tensor& x);

// Writes a file atomically, with the layout of the reference implementation (widest elements first, then by name): the
// same tensors give the same bytes. If there are metadata, they get a checksum of these bytes. Tensors may have any
// device and strides. Throws IoError, or UsageError for a repeated name.
void write_safetensors(const std::string& path, const std::vector<NamedTensor>& tensors,
                       std::map<std::string, std::string> metadata = {});
void write_safetensors(const std::string& path, std::vector<FileTensor> tensors,
                       std::map<std::string, std::string> metadata = {});

// Reads a file; tensors are on cpu:0. Throws IoError if the file cannot be read; FormatError, with the reason, for what
// parse_safetensors_header (safetensors_header.h) rejects, for bytes that do not match their checksum, and for weights
// in another format, with how to convert them.
Safetensors read_safetensors(const std::string& path);

// The same in parts: `begin` gets the header, then `put` some rows of each tensor at a time. The checksum is compared
// at the end. With `wanted`, of other tensors only the checksum is looked at, and they may be of any type.
struct SafetensorsHeader;
struct TensorEntry;
void read_safetensors(const std::string& path, const std::function<void(const SafetensorsHeader&)>& begin,
                      const std::function<void(const TensorEntry&, Part rows, const Tensor& x)>& put,
                      const std::function<bool(const std::string& name)>& wanted = {});

}  // namespace ringtape
