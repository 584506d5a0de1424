#pragma once
#include <cstddef>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

#include "emulation/shared.h"

namespace ringtape::emulation {

// The only range of addresses that kernels may use: the GPUs' memory, then the shared memory of the running block.
inline constexpr size_t kDeviceBytes = size_t{4} << 30;  // of address space, not of physical memory
inline constexpr size_t kSharedBytes = kSharedDistance * (kMaxSharedArrays + 1);

struct Arena {
  char* base;
  char* device;
  char* shared;
};
Arena& arena();

// An AddressSanitizer build stops at an access to hidden memory.
inline void hide([[maybe_unused]] void* p, [[maybe_unused]] size_t bytes) {
#if defined(__SANITIZE_ADDRESS__)
  __asan_poison_memory_region(p, bytes);
#endif
}
inline void show([[maybe_unused]] void* p, [[maybe_unused]] size_t bytes) {
#if defined(__SANITIZE_ADDRESS__)
  __asan_unpoison_memory_region(p, bytes);
#endif
}

}  // namespace ringtape::emulation
