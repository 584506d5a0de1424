#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

#include "tests/emulation/report.h"

namespace ringtape::emulation {

// A block's shared array, one for each SHARED_ARRAY of the program. Every array starts kSharedDistance after the one before,
// more than a block can have in all: no index leads from one into another unnoticed.
struct SharedSlot {
  const char* name;
  size_t bytes;
  uint64_t block = 0;      // the block that it lies in place for: a count of all blocks executed
  char* data = nullptr;
};
inline constexpr size_t kSharedDistance = size_t{512} << 10;
inline constexpr int kMaxSharedArrays = 64;

void* shared(SharedSlot& slot, Place place = Place::here());  // the same for all threads of the block
void* dynamic_shared();

// For the scheduler.
void begin_shared(size_t dynamic_bytes);
void end_shared();                  // the block is over: reports writes past an array's end

bool is_shared(const void* p);
std::string describe_shared(const void* p);  // "byte 128 of the 128 of shared array tile"

}  // namespace ringtape::emulation
