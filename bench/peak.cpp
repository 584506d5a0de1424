#include "bench/peak.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <vector>

#include "autograd/create.h"
#include "autograd/ops.h"
#include "bench/timing.h"
#include "core/parallel.h"
#include "core/runtime.h"
#include "core/tensor.h"
#include "kernels/kernel.h"

namespace ringtape::bench {
namespace {

constexpr int kRuns = 7;

template <class F> double best_seconds(F&& f) {
  double best = 1e9;
  for (int run = 0; run < kRuns; ++run) {
    const auto begin = std::chrono::steady_clock::now();
    f();
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  return best;
}

typedef float V4 __attribute__((vector_size(16)));
typedef float V8 __attribute__((vector_size(32)));
typedef float V16 __attribute__((vector_size(64)));

// Accumulators: enough to fill two pipelines of latency 4 to 6; of Arm's processors, four of latency 4.
#if defined(__aarch64__)
#define RT_IN_REGISTER "+w"
constexpr int kAccumulators = 24;
#else
#define RT_IN_REGISTER "+x"
constexpr int kAccumulators = 12;
#endif
template <class V> [[gnu::always_inline]] inline float multiply_add(int64_t repeats) {
  V acc[kAccumulators], x = V{} + 1e-6f;
#pragma GCC unroll 24
  for (int i = 0; i < kAccumulators; ++i) acc[i] = V{} + float(i);  // all different, or they would be computed once
  for (int64_t i = 0; i < repeats; ++i) {
#pragma GCC unroll 24
    for (V& a : acc) a += a * x;
#ifndef __clang__  // which has no register of that size before inlining; results are for GCC
    asm volatile("" : RT_IN_REGISTER(x));
#endif
  }
  V sum = {};
#pragma GCC unroll 24
  for (const V& a : acc) sum += a;
  return sum[0];
}
#if defined(__x86_64__)
[[gnu::target("avx512f")]] float run_avx512(int64_t repeats) { return multiply_add<V16>(repeats); }
[[gnu::target("avx2,fma")]] float run_avx2(int64_t repeats) { return multiply_add<V8>(repeats); }
#endif
float run_portable(int64_t repeats) { return multiply_add<V4>(repeats); }

}  // namespace

double peak_bandwidth() {
  constexpr int64_t bytes = int64_t{256} << 20;
  const Tensor from = zeros({bytes}, DType::u8), to = zeros({bytes}, DType::u8);
  const double seconds = best_seconds([&] {
    parallel_for(bytes, bytes / 64, [&](int64_t begin, int64_t end) {
      std::memcpy(to.data<uint8_t>() + begin, from.data<uint8_t>() + begin, size_t(end - begin));
    });
  });
  return 2.0 * double(bytes) / seconds;
}

double peak_flops() {
  constexpr int64_t repeats = 2'000'000;
  int lanes = 4;
  float (*run)(int64_t) = run_portable;
#if defined(__x86_64__)
  if (cpu_isa() == CpuIsa::avx512) lanes = 16, run = run_avx512;
  if (cpu_isa() == CpuIsa::avx2) lanes = 8, run = run_avx2;
#endif
  std::vector<float> sink(size_t(threads()) * 16);
  const double seconds = best_seconds([&] {
    parallel_for(threads(), 1, [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) sink[size_t(t) * 16] = run(repeats);
    });
  });
  return 2.0 * kAccumulators * lanes * double(repeats) * threads() / seconds;
}

double copy_bandwidth(Device device) {
  constexpr int64_t bytes = int64_t{512} << 20;
  const Tensor from = zeros({bytes}, DType::u8, device), to = zeros({bytes}, DType::u8, device);
  const double seconds = best_seconds_of_a_call(
      device, [&] { runtime(device).copy(View(to).data, device, View(from).data, device, size_t(bytes)); });
  return 2.0 * double(bytes) / seconds;
}

double matmul_flops(Device device, DType dtype) {
  constexpr double kLong = 20e-3;  // larger products would not be faster
  double best = 0, seconds = 0;
  for (int64_t n = 512; n <= 8192 && seconds < kLong; n *= 2) {
    const Tensor a = randn({n, n}, 0, 1, dtype, device), b = randn({n, n}, 0, 1, dtype, device);
    Tensor c;
    seconds = best_seconds_of_a_call(device, [&] { c = matmul(a, b); });
    best = std::max(best, 2.0 * double(n) * double(n) * double(n) / seconds);
  }
  return best;
}

}  // namespace ringtape::bench
