#pragma once
#include <gtest/gtest.h>

#include "emulation/emulation.h"
#include "emulation/nccl.h"

namespace ringtape::test {

// Four emulated GPUs, and an NCCL without faults before and after, of which no communicator is left.
class EmulatedNccl : public testing::Test {
 protected:
  void SetUp() override { emulation::set_gpu({.devices = 4}); }
  void TearDown() override {
    emulation::set_nccl_faults({});
    emulation::take_nccl_calls();
    EXPECT_EQ(emulation::nccl_communicators(), 0u);
  }
};

}  // namespace ringtape::test
