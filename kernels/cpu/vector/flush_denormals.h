#pragma once
#include <cstdint>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "kernels/cpu/vector/isa.h"

RT_ISA_BEGIN

namespace {

// While it lives, subnormal results and operands count as 0 on this thread. The moments of weights whose gradient stays
// 0 decay through that range: there Adam's step on MNIST took three times as long.
class FlushDenormals {
#if defined(__x86_64__)
 public:
  FlushDenormals() : before_(_mm_getcsr()) { _mm_setcsr(before_ | 0x8040); }
  ~FlushDenormals() { _mm_setcsr(before_); }

 private:
  unsigned before_;
#elif defined(__aarch64__)
 public:
  FlushDenormals() {
    asm volatile("mrs %0, fpcr" : "=r"(before_));
    set(before_ | 1 << 24);
  }
  ~FlushDenormals() { set(before_); }

 private:
  // No computation may move across it: all of them are on memory.
  static void set(uint64_t control) { asm volatile("msr fpcr, %0" ::"r"(control) : "memory"); }

  uint64_t before_;
#endif
};

}  // namespace

RT_ISA_END
