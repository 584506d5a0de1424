#include "emulation/traffic.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <set>
#include <vector>

#include "emulation/block.h"
#include "emulation/checker.h"
#include "emulation/memory.h"
#include "emulation/shared.h"

namespace ringtape::emulation {

constinit Traffic* traffic = nullptr;

namespace {

struct Access {
  uintptr_t address;
  size_t bytes;
};
using Accesses = std::vector<Access>;  // of one thread in its order, or of one request
std::array<Accesses, kMaxThreads>& accesses = *new std::array<Accesses, kMaxThreads>;
uint64_t seen = 0;  // bytes, by the checker

// Of lanes that shared memory serves at once: at most 128 bytes.
void count_wavefront(const std::vector<Access>& served) {
  std::array<std::set<uintptr_t>, 32> words;  // by bank
  for (const auto& [address, bytes] : served)
    for (uintptr_t word = address / 4; word <= (address + bytes - 1) / 4; ++word) words[word % 32].insert(word);
  size_t most = 0;
  for (const auto& each : words) most = std::max(most, each.size());
  traffic->wavefronts += most;
  traffic->conflicts += most > 0 ? most - 1 : 0;
}

// The n-th accesses of these lanes, to shared memory: those of 8 bytes by half a warp, of 16 by a quarter.
void count_shared_request(const Accesses* lanes, size_t count, size_t n) {
  std::vector<Access> served;
  size_t bytes = 0;
  for (size_t lane = 0; lane < count; ++lane) {
    if (n >= lanes[lane].size() || !is_shared(reinterpret_cast<void*>(lanes[lane][n].address))) continue;
    const Access& a = lanes[lane][n];
    if (bytes + std::max<size_t>(a.bytes, 4) > 128) count_wavefront(served), served.clear(), bytes = 0;
    served.push_back(a);
    bytes += std::max<size_t>(a.bytes, 4);
  }
  count_wavefront(served);
}

// To global memory, by one request.
void count_request(const Accesses& together) {
  std::vector<uintptr_t> sectors;
  for (const auto& [address, bytes] : together) {
    for (uintptr_t s = address / Traffic::kSector; s <= (address + bytes - 1) / Traffic::kSector; ++s)
      sectors.push_back(s);
    traffic->bytes += bytes;
  }
  if (sectors.empty()) return;
  std::sort(sectors.begin(), sectors.end());
  ++traffic->requests;
  traffic->sectors += uint64_t(std::unique(sectors.begin(), sectors.end()) - sectors.begin());
}

// The n-th accesses of these lanes, to global memory.
void count_global_request(const Accesses* lanes, size_t count, size_t n) {
  Accesses together;
  for (size_t lane = 0; lane < count; ++lane)
    if (n < lanes[lane].size() && lanes[lane][n].bytes > 0 &&
        !is_shared(reinterpret_cast<void*>(lanes[lane][n].address)))
      together.push_back(lanes[lane][n]);
  count_request(together);
}

// By number and sizes; a copy of nothing is like any.
bool alike(const Accesses& a, const Accesses& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const Access& x, const Access& y) { return x.bytes == y.bytes || !x.bytes || !y.bytes; });
}

void count_warp(const Accesses* lanes, size_t count) {
  const auto more = [](const Accesses& a, const Accesses& b) { return a.size() < b.size(); };
  const Accesses& longest = *std::max_element(lanes, lanes + count, more);
  const auto fits = [&](const Accesses& a) { return a.empty() || alike(a, longest); };
  traffic->uneven += !std::all_of(lanes, lanes + count, fits);
  for (size_t n = 0; n < longest.size(); ++n) {
    count_global_request(lanes, count, n);
    count_shared_request(lanes, count, n);
  }
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

void count_matrix_rows(const void* const* rows, int matrices) {
  for (int m = 0; m < matrices; ++m) {
    std::vector<Access> served;
    for (int i = 0; i < 8; ++i) served.push_back({reinterpret_cast<uintptr_t>(rows[8 * m + i]), 16});
    count_wavefront(served);
  }
}

void count_box(const std::vector<std::span<const char>>& inside, size_t shared_bytes) {
  Accesses together;
  for (const std::span<const char> each : inside) {
    together.push_back({reinterpret_cast<uintptr_t>(each.data()), each.size()});
    saw_access(each.data(), each.size());
  }
  count_request(together);
  traffic->wavefronts += (shared_bytes + 127) / 128;
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
