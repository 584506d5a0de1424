#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

namespace ringtape::emulation {

// One for each kernel that is launched (launchable<kernel>()), registered in a list before main(), executed or not.
struct Kernel {
  Kernel(const char* spelling, const size_t* sizes, void (*call)(void* const* args));
  Kernel(const Kernel&) = delete;
  std::string name() const;                             // "softmax_forward<float>"
  std::function<void()> with(void* const* args) const;  // one thread's execution; the arguments are copied

  const char* spelling;  // a __PRETTY_FUNCTION__ with the kernel in it
  const size_t* sizes;   // of its parameters, then 0
  void (*call)(void* const* args);
  Kernel* next;
  mutable uint64_t launches[3] = {};  // by schedule
  mutable bool atomics = false;       // it has executed some
};

}  // namespace ringtape::emulation
