#pragma once

namespace ringtape {

// For loops that spin: the core takes a short rest, which saves power and leaves more of it to its other thread. Arm's
// `yield` does nothing on most processors, an `isb` takes about as long as x86's `pause`.
inline void pause_core() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");
#endif
}

}  // namespace ringtape
