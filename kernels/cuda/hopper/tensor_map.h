#pragma once
#include <cuda.h>

#include <cstdint>
#include <initializer_list>

#include "core/dtype.h"

namespace ringtape::cuda {

// Of a dense tensor of 16-bit numbers in global memory, for the copy engine (hopper/bulk_copy.cuh): boxes of it, of up
// to 64 numbers in the innermost axis, lie in shared memory as wgmma reads them. Axes are listed from the innermost on.
// Throws DeviceError where the driver cannot make one.
CUtensorMap tensor_map(DType dtype, const void* data, std::initializer_list<int64_t> dims,
                       std::initializer_list<int64_t> box);

}  // namespace ringtape::cuda
