#pragma once
#include <string>

#include "core/tensor.h"

namespace ringtape {

// Reads an idx file of unsigned bytes with `rank` axes, gzip-compressed or plain: u8 of the declared shape. Format
// (LeCun, MNIST): bytes 0, 0, element type, rank; each size as a big-endian u32; the elements, row-major. Throws
// IoError if the file cannot be read, FormatError if its content differs from that format in any byte. Sizes are
// checked against the file before memory is allocated.
Tensor read_idx(const std::string& path, int rank);

}  // namespace ringtape
