#pragma once
#include <cstdint>

#include "emulation/checker.h"
#include "emulation/report.h"

// Barriers of some threads of a block.
namespace ringtape::emulation {

// bar.sync and bar.arrive of barrier 1 to 15: it is passed when `threads` have come, which are whole warps. Those that
// arrive do not wait.
void named_barrier(int number, int threads, bool waits, Place place);

// mbarrier: 8 bytes of shared memory. Its phase ends when `count` arrivals and all expected bytes have come; the next
// one begins. A thread waits for the end of the newest phase of a parity: 0 for the first. The copy engine uses only
// barriers whose initialisation has been fenced.
void init_mbarrier(uint64_t* barrier, int count, Place place);
void fence_mbarriers();  // those that the thread has initialised
void arrive_at(uint64_t* barrier, Place place);
void arrive_expecting(uint64_t* barrier, uint32_t bytes, Place place);
void wait_at(uint64_t* barrier, int parity, Place place);

void begin_barriers();                                               // of a block
void order_barriers();                                               // by a barrier of all its threads
void check_barrier(uint64_t* barrier, Place place, const void* pc);  // reports one that is not initialised
void arrive_with(uint64_t* barrier, const Stamp& stamp);             // for what a thread did until `stamp`
void check_engine_barrier(uint64_t* barrier, Place place, const void* pc);
void report_missing_bytes();  // of barriers that threads wait at

// Bytes have come by a copy that began after `stamp`.
struct Completion {
  size_t barrier;  // its number
  uint32_t phase;  // phases that will have ended with this one
};
Completion complete_bytes(uint64_t* barrier, uint32_t bytes, const Stamp& stamp);

}  // namespace ringtape::emulation
