#pragma once
#include <gtest/gtest.h>

#include "kernels/kernel.h"

namespace ringtape::test {

// Calls f() with each instruction set that this machine and this build have.
template <class F> void with_every_isa(F&& f) {
  struct Restore {
    CpuIsa before = cpu_isa();
    ~Restore() { set_cpu_isa(before); }
  } const restore;
  for (const CpuIsa isa : cpu_isas()) {
    SCOPED_TRACE(name_of(isa));
    set_cpu_isa(isa);
    f();
  }
}

}  // namespace ringtape::test
