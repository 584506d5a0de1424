#pragma once
#include <gtest/gtest.h>

#include "core/dtype.h"
#include "core/runtime.h"
#include "kernels/arithmetic.h"
#if defined(RINGTAPE_EMULATION_BUILD)
#include "emulation/emulation.h"
#endif

// Common parts of the tests of the CUDA backend. They run natively if there is a GPU, and emulated in an emulated
// build.
namespace ringtape::test {

inline constexpr Device kCuda{DeviceType::cuda, 0};

}  // namespace ringtape::test

// At the beginning of a test, or in SetUp: skips the test if there is no device.
#define RT_NEEDS_CUDA() \
  if (!::ringtape::available(::ringtape::test::kCuda)) GTEST_SKIP() << "no CUDA device"

namespace ringtape::test {

inline constexpr DType kFloats[] = {DType::f32, DType::f64, DType::bf16, DType::f16};

// The numbers that tensor cores multiply; f32 as TF32, where a Tf32 lives.
inline constexpr DType kMultiplied[] = {DType::bf16, DType::f16, DType::f32};
struct Tf32 : ArithmeticScope {
  explicit Tf32(bool allowed = true) : ArithmeticScope(&Arithmetic::tf32, allowed) {}
  explicit Tf32(DType dtype) : Tf32(dtype == DType::f32) {}
};

// A fixture whose tests are skipped if there is no device.
class OnCuda : public testing::Test {
 protected:
  void SetUp() override { RT_NEEDS_CUDA(); }
};

}  // namespace ringtape::test
