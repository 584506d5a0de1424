#pragma once
#include <cstdint>
#include <mutex>
#include <vector>

#include "emulation/arena.h"
#include "emulation/checker.h"
#include "emulation/order.h"

namespace ringtape::emulation {

// The accesses to a word, or to a byte, after which later ones have to be ordered: the last write and two reads since
// it, by different warps if possible. Atomic operations need no order among themselves, so the second to last is kept,
// too: reads[1] is then a write.
struct Cell {
  Access write, reads[2];
  bool split() const { return write.who & Access::kSplit; }  // of a word: its bytes have separate cells
};

// Records for the arena's memory, for each word of four bytes: a byte of state (which bytes are live and which are
// written) and a cell. Address space is reserved for all of it, when the device is first used; physical memory is used
// only for words that kernels have accessed.
class Shadow final : public Checker {
 public:
  void access(const void* p, size_t bytes, AccessKind kind, const void* pc);
  template <size_t bytes, AccessKind kind> void access(const void* p, const void* pc) {
    const size_t offset = size_t(static_cast<const char*>(p) - base_);
    if (offset >= kArenaBytes && on_stack(p)) return;
    if (bytes < 4 || offset % bytes || offset >= kArenaBytes) return access(p, bytes, kind, pc);
    const uint32_t oldest = offset < kDeviceBytes ? order_.grid_epoch() : order_.block_epoch();
    for (size_t word = offset / 4; word < (offset + bytes) / 4; ++word)
      if (!fine(cells_[word], states_[word], kind, oldest, pc)) access_word(word, 0xF, kind, pc);
  }
  void misaligned(const void* p, Where where, const char* access);

  void begin_grid() override;
  void begin_block(uint64_t number, int threads) override;
  void block_barrier() override { order_.block_barrier(); }
  void warp_barrier(int first_thread, uint32_t lanes) override { order_.warp_barrier(first_thread, lanes); }
  void thread_fence() override { order_.thread_fence(); }
  void atomic(const void* p, size_t bytes, const void* pc) override;
  void cached_read(const void* p, size_t bytes, const void* pc) override;
  void access(const void* p, size_t bytes, bool writes, const void* pc) override;
  void begin_copy(const void* to, size_t bytes, const void* pc) override;
  void end_copy(const void* to, size_t bytes, bool waited, const void* pc) override;
  void fence_proxy() override { order_.fence_proxy(); }
  void begin_async_read(const void* p, size_t bytes, const void* pc) override;
  void end_async_read(const void* p, size_t bytes, const void* pc) override;
  size_t begin_landing(const void* to, size_t bytes, const void* pc) override;
  void landed(size_t landing, size_t barrier, uint32_t phase) override;
  bool knows(int thread, const Stamp& stamp) const override { return order_.knows(thread, stamp); }
  uint32_t phases_known(int thread, size_t barrier) const override { return order_.phases_known(thread, barrier); }
  void release(Stamp& stamp) override { order_.release(stamp); }
  void acquire(int thread, const Stamp& stamp) override { order_.acquire(thread, stamp); }
  void set(const void* p, size_t bytes, Memory state) override;
  void mark_initialised(const void* p, size_t bytes) override;
  void mark_copied(void* to, const void* from, size_t bytes) override;
  bool initialised(const void* p, size_t bytes) override;
  void forget(const void* p, size_t bytes) override;

 private:
  static bool on_stack(const void* p) { return size_t(static_cast<const char*>(p) - block.stack) < block.stack_bytes; }
  static constexpr size_t kArenaBytes = kDeviceBytes + kSharedBytes, kWords = kArenaBytes / 4;

  // The common case, inline: a whole, live word, written before it is read, without unordered accesses.
  bool fine(Cell& c, uint8_t& state, AccessKind kind, uint32_t oldest, const void* pc) {
    if ((kind == AccessKind::write ? state | 0xF : state) != 0xFF || c.split()) return false;
    if (!order_.ordered(c.write, oldest)) return false;
    if (kind == AccessKind::read) {
      if (c.reads[1].atomic()) return false;
      remember_read(c, order_.now(kind, pc), oldest);
      return true;
    }
    if (!order_.ordered(c.reads[0], oldest) || !order_.ordered(c.reads[1], oldest)) return false;
    state = 0xFF;
    c = {order_.now(kind, pc), {}};
    return true;
  }
  void access_word(size_t word, uint32_t bytes, AccessKind kind, const void* pc);
  bool usable(size_t word, uint32_t bytes, AccessKind kind, const void* pc);
  void refuse(size_t word, uint32_t bytes, AccessKind kind, const void* pc);
  bool settled(size_t word);
  void access_cell(Cell& c, const char* p, AccessKind kind, const void* pc);
  // Uses a free entry, else replaces one of two readers of the same warp, so that a writer of any warp must be ordered
  // after at least one of them.
  void remember_read(Cell& c, const Access& me, uint32_t oldest) {
    for (Access& r : c.reads)
      if (!r.atomic() && ((r.epoch == me.epoch && r.thread() == me.thread()) || order_.ordered(r, oldest))) {
        r = me;
        return;
      }
    if (!c.reads[1].atomic() && c.reads[0].thread() / 32 == c.reads[1].thread() / 32 &&
        c.reads[0].thread() / 32 != me.thread() / 32)
      c.reads[1] = me;
  }
  void split(size_t word);
  void foreign(const void* p, size_t bytes, AccessKind kind, const void* pc);
  void race(const char* p, AccessKind kind, const void* pc, const Access& other, bool other_writes);
  const char* address(size_t word) const { return base_ + word * 4; }
  void reserve();  // called before anything else is

  // What bulk copies write. Until the current thread knows the end of the phase, its words are in flight.
  struct Landing {
    size_t first, words, barrier = 0;
    uint32_t phase = 0;  // 0: it has not come yet
    bool settled = false;
  };

  std::once_flag reserved_;
  char* base_ = nullptr;
  uint8_t* states_ = nullptr;  // live bytes in the upper half, written ones in the lower; or a special state below
  Cell* cells_ = nullptr;      // by word
  Cell* byte_cells_ = nullptr;
  uint8_t* readers_ = nullptr;     // by 16 bytes of shared memory: asynchronous reads that go on
  size_t read_until_ = 0;          // that have been touched in this block
  std::vector<Landing> landings_;  // of this block
  Order order_;
};

}  // namespace ringtape::emulation
