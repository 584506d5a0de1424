#include "core/fiber.h"

#include <sys/mman.h>

#include <atomic>
#include <new>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

namespace ringtape {
#if defined(__SANITIZE_ADDRESS__)
constexpr size_t kStackBytes = 256 << 10;
#else
constexpr size_t kStackBytes = 64 << 10;
#endif
constexpr size_t kGuardBytes = 16 << 10;
constexpr size_t kCacheLine = 64;

static thread_local Fiber* left = nullptr;  // the fiber of the last switch

size_t Fiber::size() { return kStackBytes; }

Fiber::Fiber(void (*entry)()) : entry_(entry) {
  void* p = mmap(nullptr, kStackBytes + kGuardBytes, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) throw std::bad_alloc();
  mprotect(p, kGuardBytes, PROT_NONE);
  stack_ = static_cast<char*>(p) + kGuardBytes;
  bottom_ = stack_;
  bytes_ = kStackBytes;
  static std::atomic<size_t> count{0};
  color_ = count++ * 9 % 128 * kCacheLine;
#if defined(__SANITIZE_THREAD__)
  known_as_ = __tsan_create_fiber(0);
#endif
  restart();
}

Fiber::~Fiber() {
  if (!stack_) return;
#if defined(__SANITIZE_ADDRESS__)
  __asan_unpoison_memory_region(stack_, kStackBytes);
#endif
#if defined(__SANITIZE_THREAD__)
  __tsan_destroy_fiber(known_as_);
#endif
  munmap(stack_ - kGuardBytes, kStackBytes + kGuardBytes);
}

void Fiber::restart() {
#if defined(__SANITIZE_ADDRESS__)
  __asan_unpoison_memory_region(stack_, kStackBytes);
#endif
  fake_stack_ = nullptr;
#if defined(RT_FIBERS_ASSEMBLY)
  stack_pointer_ = ringtape_fiber_start(stack_ + kStackBytes - color_, entry_);
#else
  getcontext(&context_);
  context_.uc_stack.ss_sp = stack_;
  context_.uc_stack.ss_size = kStackBytes - color_;
  context_.uc_link = nullptr;
  makecontext(&context_, entry_, 0);
#endif
}

bool Fiber::owns(const void* p) const { return stack_ && p >= stack_ && p < stack_ + kStackBytes; }
bool Fiber::overflowed_at(const void* p) const { return stack_ && p >= stack_ - kGuardBytes && p < stack_; }

void Fiber::arrived() {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(nullptr, &left->bottom_, &left->bytes_);
#endif
}

void Fiber::switch_to(Fiber& from, Fiber& to) {
  left = &from;
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(&from.fake_stack_, to.bottom_, to.bytes_);
#endif
#if defined(__SANITIZE_THREAD__)
  if (!from.known_as_) from.known_as_ = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(to.known_as_, 0);
#endif
#if defined(RT_FIBERS_ASSEMBLY)
  ringtape_fiber_switch(&from.stack_pointer_, to.stack_pointer_);
#else
  swapcontext(&from.context_, &to.context_);
#endif
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(from.fake_stack_, &left->bottom_, &left->bytes_);
#endif
}

void Fiber::leave(Fiber& from, Fiber& to) {
  left = &from;
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(nullptr, to.bottom_, to.bytes_);
#endif
#if defined(__SANITIZE_THREAD__)
  __tsan_switch_to_fiber(to.known_as_, 0);
#endif
#if defined(RT_FIBERS_ASSEMBLY)
  ringtape_fiber_switch(&from.stack_pointer_, to.stack_pointer_);
#else
  setcontext(&to.context_);
#endif
  __builtin_unreachable();
}

}  // namespace ringtape
