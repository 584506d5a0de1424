// Part of every test executable of the CUDA backend: a test fails if the emulation found an error in it, or if
// tensors are left on a device; and the executed kernels are written to the file named by RINGTAPE_EMULATION_LOG.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "core/cuda/device.h"
#include "core/runtime.h"
#include "emulation/emulation.h"

namespace ringtape::emulation {
namespace {

// Bytes of tensors on all devices. Before the first one nothing is asked: the test may still choose the machine.
uint64_t in_use() {
  const auto made = calls();
  if (!made.contains("cudaMallocFromPoolAsync")) return 0;
  uint64_t bytes = 0;
  for (int i = 0; i < cuda::device_count(); ++i) bytes += uint64_t(memory_stats({DeviceType::cuda, i}).current);
  return bytes;
}

class Listener : public testing::EmptyTestEventListener {
  uint64_t in_use_ = 0;
  void OnTestStart(const testing::TestInfo&) override { in_use_ = in_use(); }
  void OnTestEnd(const testing::TestInfo&) override {
    for (const Report& report : reports()) ADD_FAILURE() << report.text;
    clear_reports();
    EXPECT_EQ(in_use(), in_use_) << "bytes of tensors on the devices, as before the test";
  }
  void OnTestProgramEnd(const testing::UnitTest& all) override {
    const char* path = std::getenv("RINGTAPE_EMULATION_LOG");
    if (!path || !all.Passed()) return;
    std::ofstream out(path);
    for (const KernelRun& kernel : kernels()) {
      out << (checked() ? "checked" : "values");
      for (uint64_t launches : kernel.launches) out << '\t' << launches;
      out << '\t' << kernel.name << '\n';
    }
  }
};

[[maybe_unused]] const bool appended = [] {
  testing::UnitTest::GetInstance()->listeners().Append(new Listener);
  return true;
}();

}  // namespace
}  // namespace ringtape::emulation
