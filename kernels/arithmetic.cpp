#include "kernels/arithmetic.h"

#include <atomic>

#include "core/env.h"

namespace ringtape {

static_assert(std::atomic<Arithmetic>::is_always_lock_free);

static std::atomic<Arithmetic>& in_force() {
  static std::atomic<Arithmetic> value = [] {
    Arithmetic out;
    out.exact_convolutions = env::exact_conv();
    if (env::fused_conv() >= 0) out.fused_convolutions = env::fused_conv() != 0;
    return out;
  }();
  return value;
}

Arithmetic arithmetic() { return in_force().load(std::memory_order_relaxed); }
void set_arithmetic(const Arithmetic& value) { in_force().store(value, std::memory_order_relaxed); }

}  // namespace ringtape
