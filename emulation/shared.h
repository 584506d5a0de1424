#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

#include "emulation/report.h"

namespace ringtape::emulation {

// A block's shared array, one for each SHARED_ARRAY of the program. Arrays start kSharedDistance apart, which is more
// than a block's total shared memory, so that an index out of one array does not silently reach another.
struct SharedSlot {
  const char* name;
  size_t bytes;
  uint64_t block = 0;  // the block for which it is placed: a count of all executed blocks
  char* data = nullptr;
};
inline constexpr size_t kSharedDistance = size_t{512} << 10;
inline constexpr int kMaxSharedArrays = 64;

void* shared(SharedSlot& slot, Place place = Place::here());  // the same for all threads of the block
void* dynamic_shared();

// For the scheduler.
void begin_shared(size_t dynamic_bytes);
void end_shared();  // at the end of a block: reports writes past an array's end

bool is_shared(const void* p);
std::string describe_shared(const void* p);  // "byte 128 of the 128 of shared array tile"

}  // namespace ringtape::emulation
