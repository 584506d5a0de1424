#include "core/memory_fill.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "core/env.h"

namespace ringtape {

constexpr size_t kAtMost = size_t{256} << 20;  // beyond this, memory that is never used should stay untouched

static std::atomic<int>& byte() {
  static std::atomic<int> value = env::poison() ? kPoisonByte : kNoFill;
  return value;
}

int memory_fill() { return byte().load(std::memory_order_relaxed); }
void set_memory_fill(int value) { byte().store(value, std::memory_order_relaxed); }

void fill_memory(void* data, size_t bytes) {
  if (const int value = memory_fill(); value != kNoFill) std::memset(data, value, std::min(bytes, kAtMost));
}

}  // namespace ringtape
