#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace ringtape::emulation {

// What the threads of a block had done at some point, as far as it is known: by thread, or empty. Behind the threads,
// how many phases of each mbarrier had ended.
using Stamp = std::vector<uint32_t>;
void merge(Stamp& into, const Stamp& other);

// Checks every single access. check.cpp sets `checker` if it is linked in; else it is null.
class Checker {
 public:
  enum class Memory : uint8_t { nobodys, reserved, live, freed };

  virtual void begin_grid() = 0;
  virtual void begin_block(uint64_t block, int threads) = 0;  // `block` counts x first, then y and z
  virtual void block_barrier() = 0;
  virtual void warp_barrier(int first_thread, uint32_t lanes) = 0;
  virtual void thread_fence() = 0;
  virtual void atomic(const void* p, size_t bytes, const void* pc) = 0;
  virtual void cached_read(const void* p, size_t bytes, const void* pc) = 0;
  virtual void access(const void* p, size_t bytes, bool writes, const void* pc) = 0;  // of what the emulation executes

  // An asynchronous copy to shared memory, a write of the current thread: nothing may access `to` until it ends. If the
  // thread has waited for that, the write counts as one of that moment.
  virtual void begin_copy(const void* to, size_t bytes, const void* pc) = 0;
  virtual void end_copy(const void* to, size_t bytes, bool waited, const void* pc) = 0;

  // Of the asynchronous proxy, wgmma and bulk copies, for the current thread: what it reads must not change until the
  // end, and have been fenced by whoever stored it; what it writes lands at an mbarrier, and only those who know of the
  // end of that phase may access it.
  virtual void fence_proxy() = 0;
  virtual void begin_async_read(const void* p, size_t bytes, const void* pc) = 0;
  virtual void end_async_read(const void* p, size_t bytes, const void* pc) = 0;
  virtual size_t begin_landing(const void* to, size_t bytes, const void* pc) = 0;  // its number
  virtual void landed(size_t landing, size_t barrier, uint32_t phase) = 0;

  // What the current thread did until now is added to `stamp`, or known to `thread` from now on.
  virtual void release(Stamp& stamp) = 0;
  virtual void acquire(int thread, const Stamp& stamp) = 0;
  virtual bool knows(int thread, const Stamp& stamp) const = 0;
  virtual uint32_t phases_known(int thread, size_t barrier) const = 0;

  virtual void set(const void* p, size_t bytes, Memory state) = 0;
  virtual void mark_initialised(const void* p, size_t bytes) = 0;
  virtual void mark_copied(void* to, const void* from, size_t bytes) = 0;
  virtual bool initialised(const void* p, size_t bytes) = 0;
  virtual void forget(const void* p, size_t bytes) = 0;  // drops the records of unallocated memory

 protected:
  ~Checker() = default;
};
extern Checker* checker;

}  // namespace ringtape::emulation
