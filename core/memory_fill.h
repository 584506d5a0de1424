#pragma once
#include <cstddef>

// A byte that memory of the CPU is filled with before anybody gets it, so that a result which nobody has written shows: for tests.
namespace ringtape {

inline constexpr int kNoFill = -1, kPoisonByte = 0xff;  // that byte makes NaNs of all floating dtypes

int memory_fill();               // kNoFill, or kPoisonByte with RINGTAPE_POISON=1, until it is set
void set_memory_fill(int byte);  // for what is handed out from now on, to any thread
void fill_memory(void* data, size_t bytes);  // does so, where there is a byte; of very large memory only the beginning

}  // namespace ringtape
