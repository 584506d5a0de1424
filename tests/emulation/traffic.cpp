#include "tests/emulation/traffic.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <vector>

#include "tests/emulation/block.h"
#include "tests/emulation/checker.h"
#include "tests/emulation/memory.h"

namespace ringtape::emulation {

constinit Traffic* traffic = nullptr;

namespace {

struct Access {
  uintptr_t address;
  size_t bytes;
};
using Accesses = std::vector<Access>;  // of one thread, in its order
std::array<Accesses, kMaxThreads>& accesses = *new std::array<Accesses, kMaxThreads>;
uint64_t seen = 0;  // bytes, by the checker

// The n-th accesses of these lanes.
void count_request(const Accesses* lanes, size_t count, size_t n) {
  std::vector<uintptr_t> sectors;
  for (size_t lane = 0; lane < count; ++lane) {
    if (n >= lanes[lane].size()) continue;
    const auto [address, bytes] = lanes[lane][n];
    for (uintptr_t s = address / Traffic::kSector; s <= (address + bytes - 1) / Traffic::kSector; ++s)
      sectors.push_back(s);
    traffic->bytes += bytes;
  }
  std::sort(sectors.begin(), sectors.end());
  ++traffic->requests;
  traffic->sectors += uint64_t(std::unique(sectors.begin(), sectors.end()) - sectors.begin());
}

// By number and sizes.
bool alike(const Accesses& a, const Accesses& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const Access& x, const Access& y) { return x.bytes == y.bytes; });
}

void count_warp(const Accesses* lanes, size_t count) {
  const auto more = [](const Accesses& a, const Accesses& b) { return a.size() < b.size(); };
  const Accesses& longest = *std::max_element(lanes, lanes + count, more);
  const auto fits = [&](const Accesses& a) { return a.empty() || alike(a, longest); };
  traffic->uneven += !std::all_of(lanes, lanes + count, fits);
  for (size_t n = 0; n < longest.size(); ++n) count_request(lanes, count, n);
}

}  // namespace

Traffic traffic_of(const std::function<void()>& f) {
  Traffic counted;
  struct Counting {
    explicit Counting(Traffic* to) { traffic = to; }
    ~Counting() { traffic = nullptr; }
  };
  cudaDeviceSynchronize();  // what is queued belongs to others
  seen = 0;
  {
    const Counting counting(&counted);
    f();
    cudaDeviceSynchronize();
  }
  if (checker) counted.unmarked = seen - counted.bytes;
  return counted;
}

void count_access(const void* p, size_t bytes) {
  if (!traffic) return;
  const HostCode host;
  accesses[size_t(block.current)].push_back({reinterpret_cast<uintptr_t>(p), bytes});
}

void saw_access(const void* p, size_t bytes) {
  if (is_device(p)) seen += bytes;
}

void count_block() {
  const size_t size = size_t(block.size);
  traffic->threads += size;
  for (size_t first = 0; first < size; first += 32) count_warp(&accesses[first], std::min<size_t>(32, size - first));
  for (size_t i = 0; i < size; ++i) accesses[i].clear();
}

}  // namespace ringtape::emulation
