#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace ringtape::emulation {

// What the warps of kernels ask of the machine. Accesses to memory are those that kernels mark by COUNTED(), and those
// of copies and matrix instructions; the n-th of each lane of a warp make one request together, and their addresses say
// which sectors of global memory or banks of shared memory it touches. A box of the copy engine is a request, too.
// There is no cache: every request touches its sectors anew.
struct Traffic {
  static constexpr uint64_t kSector = 32;  // bytes

  uint64_t threads = 0;     // of all blocks
  uint64_t requests = 0;    // to global memory, one for all lanes of a warp
  uint64_t sectors = 0;     // that the requests touch
  uint64_t bytes = 0;       // that the lanes asked for
  uint64_t barriers = 0;    // one for all threads of a block
  uint64_t shuffles = 0;    // one for all lanes of a warp
  uint64_t uneven = 0;      // warps whose lanes differ in their accesses, idle ones apart: which meet is then a guess
  uint64_t wavefronts = 0;  // of shared memory: each moves at most 128 bytes, one word of each of its 32 banks
  uint64_t conflicts = 0;   // those that different words of a bank add
  uint64_t products = 0;    // mma instructions, one for all lanes of a warp, and wgmma, one for a warpgroup
  uint64_t multiplied = 0;  // pairs of numbers, by these
  uint64_t unmarked = 0;    // bytes of accesses to global memory without COUNTED(); only where every access is checked
};

// Of the kernels that `f` launches; it waits for them.
Traffic traffic_of(const std::function<void()>& f);

// Behind COUNTED() of device.h. Of no bytes: for a lane that does not read what others of its request do.
void count_access(const void* p, size_t bytes);

// For the scheduler and the checker. Null while nobody counts.
extern Traffic* traffic;
void count_block();                                             // at its end
void count_matrix_rows(const void* const* rows, int matrices);  // 8 of 16 bytes for each
// A box of the copy engine: what of it is inside of its tensor, and all its bytes.
void count_box(const std::vector<std::span<const char>>& inside, size_t shared_bytes);
void saw_access(const void* p, size_t bytes);  // by a kernel, marked or not

}  // namespace ringtape::emulation
