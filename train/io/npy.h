#pragma once
#include <string>

#include "core/tensor.h"

namespace ringtape {

// Writes a tensor as a NumPy file, format 1.0, byte for byte as numpy.save writes it: little-endian, row-major, with
// room in the header for a longer first axis. Any device and strides; dtype f32, f64, i64, i32, u8 or f16. Written
// atomically; throws IoError, or DTypeError for bf16, which NumPy does not have.
void write_npy(const std::string& path, const Tensor& x);

}  // namespace ringtape
