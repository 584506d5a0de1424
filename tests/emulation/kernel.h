#pragma once
#include <cstdint>
#include <string>

namespace ringtape::emulation {

// One for each instantiation of launch<kernel>(), registered in a list before main(), executed or not.
struct Kernel {
  explicit Kernel(const char* spelling);
  Kernel(const Kernel&) = delete;
  std::string name() const;  // "softmax_forward<float>"

  const char* spelling;      // a __PRETTY_FUNCTION__ with the kernel in it
  Kernel* next;
  mutable uint64_t launches[3] = {};  // by schedule
  mutable bool atomics = false;       // it has executed some
};

template <auto kernel>
const char* kernel_name() { return __PRETTY_FUNCTION__; }

template <auto kernel>
inline Kernel registered{kernel_name<kernel>()};

}  // namespace ringtape::emulation
