#pragma once
#include <cstdint>

#include "emulation/report.h"

namespace ringtape::emulation {

enum class WarpOperation : uint8_t {
  synchronize,
  shuffle,
  ballot,
  match,
  add_u32,
  min_u32,
  max_u32,
  min_i32,
  max_i32,
  bit_and,
  bit_or,
  bit_xor,
  load_matrices,
  store_matrices,
  transpose_matrix,
  multiply_matrices,
  warpgroup
};

// Waits for the lanes of `mask` that have not returned, and combines their values. `source`: the lane that a shuffle
// reads.
uint64_t warp_operation(WarpOperation operation, uint32_t mask, uint64_t value, int source, Place place);

int lane();  // of the running thread, 0 to 31

}  // namespace ringtape::emulation
