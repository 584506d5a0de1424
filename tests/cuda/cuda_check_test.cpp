// What `ringtape doctor` checks.
#include "core/runtime.h"
#include "tests/support/cuda_support.h"
#include "train/run/device_check.h"

namespace ringtape {
namespace {

TEST(CudaCheck, EveryGpuComputesAsTheCpu) {
  RT_NEEDS_CUDA();
  int checks = 0;
  check_gpus([&](const DeviceCheck& c) {
    ++checks;
    EXPECT_TRUE(c.passed) << c.name << ": " << c.result;
  });
  EXPECT_EQ(checks, 15 * runtime(test::kCuda).device_count() + 1);
}

}  // namespace
}  // namespace ringtape
