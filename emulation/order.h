#pragma once
#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "emulation/block.h"
#include "emulation/checker.h"

namespace ringtape::emulation {

// One access of a kernel, small enough to be kept for every word of memory. The epoch counts blocks and the barriers
// that they have passed, over all grids: it identifies the grid, the block and the section between two barriers. The
// clock counts the events that order accesses within a section: the thread's __syncwarp and __threadfence calls.
struct Access {
  static constexpr uint32_t kThread = 0x3ff, kAtomic = 0x400, kSplit = 0x800;
  static constexpr int kClockShift = 12;

  uint32_t epoch = 0, who = 0;
  int32_t instruction = 0;  // relative to this program's

  uint32_t thread() const { return who & kThread; }
  uint32_t clock() const { return who >> kClockShift; }
  bool atomic() const { return who & kAtomic; }
  const void* pc() const;
};
int32_t relative(const void* pc);

enum class AccessKind : uint8_t { read, write, atomic };

// Which accesses happen before which. Ordered are: accesses of earlier grids; within a block, accesses separated by a
// barrier or, in a warp, a __syncwarp, or a barrier of some threads (release, acquire); and accesses before a
// __threadfence before an atomic operation on a word, for threads that later access that word by an atomic operation.
// Shuffles order nothing.
class Order {
 public:
  void begin_grid();
  void begin_block(uint64_t number, int threads);
  void block_barrier();
  void warp_barrier(int first_thread, uint32_t lanes);
  void thread_fence();
  void atomic(const void* p);
  void release(Stamp& stamp);
  void acquire(int thread, const Stamp& stamp);
  bool knows(int thread, const Stamp& stamp) const;
  uint32_t phases_known(int thread, size_t barrier) const;  // of mbarrier number `barrier`: how many have ended
  void fence_proxy();
  void begin_async_write();                // the current thread's writes until the next release() need no fence
  bool fenced(const Access& write) const;  // by its writer, as the current thread knows

  Access now(AccessKind kind, const void* pc) const {
    const uint32_t me = uint32_t(block.current);
    return {epoch_,
            me | (kind == AccessKind::atomic ? Access::kAtomic : 0) | clocks_[me][me % 32] << Access::kClockShift,
            relative(pc)};
  }
  // Whether `a` happened before the current thread's next access. `oldest` is grid_epoch() or, in shared memory,
  // block_epoch().
  bool ordered(const Access& a, uint32_t oldest) const {
    if (a.epoch < oldest || (a.epoch != epoch_ && a.epoch >= block_epoch_)) return true;
    const uint32_t me = uint32_t(block.current), other = a.thread();
    if (a.epoch == epoch_ && (other == me || (other / 32 == me / 32 && clocks_[me][other % 32] >= a.clock())))
      return true;
    if (a.epoch == epoch_ && !known_.empty() && known_[me].size() > other && known_[me][other] >= a.clock())
      return true;
    return !hand_overs_.empty() && handed_over(a);
  }
  void restart() { epoch_ = 1; }  // after all accesses were dropped
  uint32_t epoch() const { return epoch_; }
  uint32_t grid_epoch() const { return grid_epoch_; }
  uint32_t block_epoch() const { return block_epoch_; }
  uint64_t block_of(const Access& a) const { return blocks_[ordinal(a.epoch)].number; }

 private:
  struct Point {   // in a thread's execution
    size_t block;  // its number in the grid
    uint32_t epoch, thread;
    uint32_t clocks[32];  // clocks of its warp that it has seen
    bool after(const Access& a) const;
  };
  struct HandOver {
    Point release;
    size_t fences;  // how many there were
  };
  struct Seen {
    const std::vector<HandOver>* hand_overs;
    size_t count;
    uint32_t epoch, thread, clock;
  };
  struct ProxyFence {  // of the accesses at clocks `from` to `to`, for those who know of `moment`
    uint32_t epoch, from, to, moment;
  };
  struct Started {
    uint32_t epoch;
    uint64_t number;
  };

  Point point() const;
  size_t ordinal(uint32_t epoch) const;
  bool handed_over(const Access& a) const;
  bool fenced(const Access& a, const HandOver& h) const;

  uint32_t epoch_ = 1, grid_epoch_ = 1, block_epoch_ = 1;
  uint32_t clocks_[kMaxThreads][32] = {};  // by thread: the clocks of its warp's lanes that it has seen
  std::vector<Stamp> known_;               // by thread: those of the block's other threads; empty if it never met them
  std::vector<Started> blocks_;
  std::vector<Point> fences_;
  std::vector<std::vector<ProxyFence>> proxy_fences_;                  // by thread
  std::unordered_map<const void*, std::vector<HandOver>> hand_overs_;  // by the word of the atomic operation
  std::vector<Seen> seen_;                                             // by threads of this block
};

}  // namespace ringtape::emulation
