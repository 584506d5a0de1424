#include "emulation/kernel.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include "core/cuda/device.h"
#include "emulation/emulation.h"

namespace ringtape::emulation {
namespace {

constinit Kernel* first = nullptr;

}  // namespace

Kernel::Kernel(const char* text, const size_t* parameters, void (*function)(void* const*))
    : spelling(text), sizes(parameters), call(function), next(first) {
  first = this;
}

std::string Kernel::name() const { return cuda::readable_kernel_name(spelling); }

std::function<void()> Kernel::with(void* const* args) const {
  using Unit = std::max_align_t;
  std::vector<size_t> at;
  size_t units = 0;
  for (size_t i = 0; sizes[i]; ++i) {
    at.push_back(units);
    units += (sizes[i] + sizeof(Unit) - 1) / sizeof(Unit);
  }
  const auto copy = std::make_shared<Unit[]>(units);
  std::vector<void*> places;
  for (size_t i = 0; i < at.size(); ++i) places.push_back(std::memcpy(&copy[at[i]], args[i], sizes[i]));
  return [this, copy, places = std::move(places)] { call(places.data()); };
}

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
