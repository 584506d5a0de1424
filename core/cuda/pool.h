#pragma once
#include "core/runtime.h"

// The memory part of cuda::runtime.
namespace ringtape::cuda {

void* allocate(size_t bytes, int index);
void deallocate(void* data, size_t bytes, int index) noexcept;
MemoryStats stats(int index);
int64_t free_bytes(int index);
void reset_peak(int index);
void release_cached(int index);  // waits for the compute stream

}  // namespace ringtape::cuda
