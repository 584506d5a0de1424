#pragma once
#include <cstddef>

#include "core/fiber_switch.h"

#if !defined(RT_FIBERS_ASSEMBLY)
#include <ucontext.h>
#endif

namespace ringtape {

// A stack and the point where its execution was left. On x86-64 a switch costs about 5 ns: a function call without a
// system call (core/fiber_switch.h). Elsewhere ucontext takes about 300 ns. Fibers that switch to each other belong to
// one thread.
class Fiber {
 public:
  Fiber() = default;                // the calling thread's own stack
  explicit Fiber(void (*entry)());  // a new stack; the first switch to it calls entry(), which never returns
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  void restart();                           // discards the stack's content: the next switch to it calls entry() again
  bool owns(const void* p) const;           // whether p is in the stack
  bool overflowed_at(const void* p) const;  // whether p is in the guard page below it
  const void* lowest() const { return stack_; }
  static size_t size();

  static void switch_to(Fiber& from, Fiber& to);           // returns when something switches back to `from`
  [[noreturn]] static void leave(Fiber& from, Fiber& to);  // `from` will be restarted or destroyed
  static void arrived();                                   // entry() calls this first

 private:
  void (*entry_)() = nullptr;
  char* stack_ = nullptr;  // the lowest usable address
  size_t color_ = 0;       // bytes left free at the top, so that stacks do not all compete for the same cache sets
  void* stack_pointer_ = nullptr;
  void* fake_stack_ = nullptr;  // AddressSanitizer's; below: the bounds of the calling thread's stack
  void* known_as_ = nullptr;    // ThreadSanitizer's handle
  const void* bottom_ = nullptr;
  size_t bytes_ = 0;
#if !defined(RT_FIBERS_ASSEMBLY)
  ucontext_t context_;
#endif
};

}  // namespace ringtape
