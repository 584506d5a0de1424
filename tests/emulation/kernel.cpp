#include "tests/emulation/kernel.h"

#include <algorithm>

#include "core/cuda/device.h"
#include "tests/emulation/emulation.h"

namespace ringtape::emulation {
namespace {

constinit Kernel* first = nullptr;

}  // namespace

Kernel::Kernel(const char* text) : spelling(text), next(first) { first = this; }

std::string Kernel::name() const { return cuda::readable_kernel_name(spelling); }

std::vector<KernelRun> kernels() {
  std::vector<KernelRun> all;
  for (const Kernel* k = first; k; k = k->next) {
    all.push_back({k->name()});
    std::copy_n(k->launches, 3, all.back().launches);
  }
  std::sort(all.begin(), all.end(), [](const KernelRun& a, const KernelRun& b) { return a.name < b.name; });
  return all;
}

}  // namespace ringtape::emulation
