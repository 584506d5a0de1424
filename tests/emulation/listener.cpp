// Part of every test executable of the CUDA backend: a test fails if the emulation found an error in it, and the
// executed kernels are written to the file named by RINGTAPE_EMULATION_LOG.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "tests/emulation/emulation.h"

namespace ringtape::emulation {
namespace {

class Listener : public testing::EmptyTestEventListener {
  void OnTestEnd(const testing::TestInfo&) override {
    for (const Report& report : reports()) ADD_FAILURE() << report.text;
    clear_reports();
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
