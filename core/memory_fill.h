#pragma once
#include <cstddef>

// For tests: a byte that CPU memory is filled with before it is handed out, so that reads of unwritten results are
// visible.
namespace ringtape {

inline constexpr int kNoFill = -1, kPoisonByte = 0xff;  // this byte gives NaN in all floating dtypes

int memory_fill();                           // default: kNoFill, or kPoisonByte with RINGTAPE_POISON=1
void set_memory_fill(int byte);              // for later allocations of all threads
void fill_memory(void* data, size_t bytes);  // no-op for kNoFill; of very large memory only the beginning

}  // namespace ringtape
