#include "kernels/conv2d.h"

#include <atomic>

#include "core/env.h"

namespace ringtape {

static std::atomic<bool>& exact() {
  static std::atomic<bool> value = env::exact_conv();
  return value;
}

void set_exact_convolutions(bool value) { exact().store(value, std::memory_order_relaxed); }
bool exact_convolutions() { return exact().load(std::memory_order_relaxed); }

static std::atomic<bool> deterministic{false};

void set_deterministic_convolutions(bool value) { deterministic.store(value, std::memory_order_relaxed); }
bool deterministic_convolutions() { return deterministic.load(std::memory_order_relaxed); }

}  // namespace ringtape
