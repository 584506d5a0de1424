#pragma once
#include <cuda.h>

#include <cstdint>
#include <span>

#include "emulation/report.h"

// Hopper's copy engine: cp.async.bulk.tensor of boxes of a tensor, between global and shared memory. Each copy happens
// at a moment that the schedule picks: forward as late as it may, reverse at once, random in between. What is outside
// of the tensor is loaded as zeros, and not stored.
namespace ringtape::emulation {

// To 128 or, if swizzled, 1024 bytes' alignment; its bytes come to the mbarrier.
void load_box(void* to, const CUtensorMap* map, uint64_t* barrier, std::span<const int> at, Place place);

// A thread's stores since its last commit are a group.
void store_box(const CUtensorMap* map, const void* from, std::span<const int> at, Place place);
void commit_stores();
void wait_for_stores(int groups);  // until at most so many of the newest groups have not read their source

void fence_async_proxy();  // what the thread has stored until now may be read by the asynchronous proxy

// For the scheduler.
void begin_bulk_copies();             // of a block
void finish_bulk_copies(int thread);  // which returns
bool finish_awaited_loads();          // whether there were any

}  // namespace ringtape::emulation
