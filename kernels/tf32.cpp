#include "kernels/tf32.h"

#include <atomic>

namespace ringtape {

static constinit std::atomic<bool> allowed_now = false;

void set_tf32(bool allowed) { allowed_now.store(allowed, std::memory_order_relaxed); }
bool tf32() { return allowed_now.load(std::memory_order_relaxed); }

}  // namespace ringtape
