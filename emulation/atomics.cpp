#include <cstring>

#include "emulation/block.h"
#include "emulation/checker.h"

// One OS thread executes a grid and switches fibers only at barriers and warp operations, so a load followed by a store
// is atomic. These functions only inform the checker.
namespace ringtape::emulation {

uint64_t atomic_load(const void* p, size_t bytes) {
  if (block.kernel) block.kernel->atomics = true;
  if (checker) {
    const HostCode host;
    checker->atomic(p, bytes, __builtin_return_address(0));
  }
  uint64_t bits = 0;
  if (bytes == 4) std::memcpy(&bits, p, 4);
  else if (bytes == 8) std::memcpy(&bits, p, 8);
  else std::memcpy(&bits, p, bytes);
  return bits;
}

void atomic_store(void* p, size_t bytes, uint64_t bits) {
  if (bytes == 4) std::memcpy(p, &bits, 4);
  else if (bytes == 8) std::memcpy(p, &bits, 8);
  else std::memcpy(p, &bits, bytes);
}

void thread_fence() {
  if (!checker) return;
  const HostCode host;
  checker->thread_fence();
}

void cached_read(const void* p, size_t bytes) {
  if (!checker) return;
  const HostCode host;
  checker->cached_read(p, bytes, __builtin_return_address(0));
}

}  // namespace ringtape::emulation
