#pragma once
#include <gtest/gtest.h>

#include "core/runtime.h"
#if defined(RINGTAPE_EMULATION_BUILD)
#include "tests/emulation/emulation.h"
#endif

// What the tests of the CUDA backend share. They run natively where there is a GPU, and emulated where the build is.
namespace ringtape::test {

inline constexpr Device kCuda{DeviceType::cuda, 0};

}  // namespace ringtape::test

// At the head of a test, or in SetUp: skips it where there is no device.
#define RT_NEEDS_CUDA() \
  if (!::ringtape::available(::ringtape::test::kCuda)) GTEST_SKIP() << "no CUDA device"
