#pragma once
#include <cstddef>

#if defined(__x86_64__) && !defined(RINGTAPE_FIBERS_UCONTEXT)
#define RT_FIBERS_ASSEMBLY 1
#else
#include <ucontext.h>
#endif

namespace ringtape {

// A stack to run on, and where it was left. Switching costs some 5 ns: a function call and no system call on x86-64; elsewhere
// (or with RINGTAPE_FIBERS_UCONTEXT) ucontext does it in some 300 ns. Fibers that switch to each other belong to one thread.
class Fiber {
 public:
  Fiber() = default;                 // the calling thread's own stack
  explicit Fiber(void (*entry)());   // a new one; entry() is called by the first switch to it, and never returns
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  void restart();                    // forgets what was on the stack: the next switch to it calls entry() again
  bool owns(const void* p) const;    // an address of the stack
  bool overflowed_at(const void* p) const;  // an address of the page below it, which nothing can access
  const void* lowest() const { return stack_; }
  static size_t size();

  static void switch_to(Fiber& from, Fiber& to);        // returns when something switches back to `from`
  [[noreturn]] static void leave(Fiber& from, Fiber& to);  // `from` will be restarted or destroyed
  static void arrived();             // what entry() calls first

 private:
  void (*entry_)() = nullptr;
  char* stack_ = nullptr;            // the lowest address that may be used
  size_t color_ = 0;                 // bytes left free at the top, so that stacks do not all compete for the same cache sets
  void* stack_pointer_ = nullptr;
  void* fake_stack_ = nullptr;       // AddressSanitizer's, and the bounds it knows of the calling thread's stack
  void* known_as_ = nullptr;         // by ThreadSanitizer
  const void* bottom_ = nullptr;
  size_t bytes_ = 0;
#if !defined(RT_FIBERS_ASSEMBLY)
  ucontext_t context_;
#endif
};

}  // namespace ringtape
