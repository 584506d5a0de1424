#pragma once
#include <cstddef>
#include <cstdint>

#include "emulation/report.h"

// cp.async: copies from global to shared memory that a thread begins and later waits for. Each happens at a moment that
// the schedule picks: forward when it is waited for, reverse at once, random at any operation of the thread's copies in
// between.
namespace ringtape::emulation {

// `bytes` is 4, 8 or 16; those from `valid` on become zero and are not read.
void copy_async(void* to, const void* from, int bytes, int valid, Place place);
void commit_copies();                                      // those since the last commit are a group
void wait_for_copies(int groups);                          // until at most so many of the newest groups are outstanding
void arrive_after_copies(uint64_t* barrier, Place place);  // at an mbarrier, once all copies until here have happened

// For the scheduler.
void begin_copies();             // of a block
void finish_copies(int thread);  // which has returned
bool finish_awaited_copies();    // those before an arrival at an mbarrier; whether there were any

}  // namespace ringtape::emulation
