#pragma once
#include <cstdint>

#include "emulation/report.h"
#include "emulation/tensor_core.h"

// Hopper's asynchronous products of a warpgroup, four warps that execute the same ones, each for 16 of the 64 rows. A
// product happens at a moment that the schedule picks: forward when it is waited for, reverse at once, random in
// between. Until it is waited for, its sums are NaN.
namespace ringtape::emulation {

struct Thread;

struct WgmmaShape {
  TensorType type;
  int columns;            // 8 to 256
  bool a_outer, b_outer;  // operands lie along their outer index, not along the depth
  bool operator==(const WgmmaShape&) const = default;
};

// d (64 x columns) += a b^T, or without `adds` = a b^T, of a depth of 16; a and b are descriptors of shared memory.
void multiply_async(const WgmmaShape& shape, float* d, uint64_t a, uint64_t b, bool adds, Place place);
void fence_products(Place place);
void commit_products(Place place);
void wait_for_products(int groups, Place place);  // until at most so many of the newest groups go on

bool elect(Place place);                        // true in one lane of the warp
void limit_registers(int number, Place place);  // of each thread of the warpgroup, from now on

// For the warp operations: when all lanes have come.
void execute_warpgroup(Thread* warp);

// For the scheduler.
void begin_wgmma();             // of a block
void finish_wgmma(int thread);  // which returns

}  // namespace ringtape::emulation
