#include "kernels/arithmetic.h"

#include <atomic>

#include "core/env.h"

namespace ringtape {

struct alignas(sizeof(Arithmetic)) Word {  // so aligned, clang needs no library for it
  Arithmetic value;
};
static_assert(std::atomic<Word>::is_always_lock_free);

static std::atomic<Word>& in_force() {
  static std::atomic<Word> word = [] {
    Arithmetic out;
    out.exact_convolutions = env::exact_conv();
    constexpr Fusing kNumbered[] = {Fusing::never, Fusing::always, Fusing::with_wgmma};
    if (env::fused_conv() >= 0) out.fusing = kNumbered[env::fused_conv()];
    return Word{out};
  }();
  return word;
}

Arithmetic arithmetic() { return in_force().load(std::memory_order_relaxed).value; }
void set_arithmetic(const Arithmetic& value) { in_force().store({value}, std::memory_order_relaxed); }

}  // namespace ringtape
