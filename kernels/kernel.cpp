#include "kernels/kernel.h"

#include <array>
#include <atomic>

#include "core/env.h"

namespace ringtape {

static constexpr std::array<std::string_view, kCpuIsas> kNames = {"portable", "avx2", "avx512"};

std::string_view name_of(CpuIsa isa) { return kNames[size_t(isa)]; }

CpuIsa best_cpu_isa() {
#if defined(__x86_64__)
  static const CpuIsa best = [] {
    const bool avx2 =
        kHasAvx2 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
    const bool avx512 = kHasAvx512 && avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    return avx512 ? CpuIsa::avx512 : avx2 ? CpuIsa::avx2 : CpuIsa::portable;
  }();
  return best;
#else
  return CpuIsa::portable;
#endif
}

static std::atomic<CpuIsa>& current() {
  static std::atomic<CpuIsa> isa = [] {
    const std::string& wanted = env::cpu_isa();
    if (wanted.empty()) return best_cpu_isa();
    for (int i = 0; i < kCpuIsas; ++i)
      if (kNames[size_t(i)] == wanted) {
        RT_CHECK_AS(DeviceError, i <= int(best_cpu_isa()), "RINGTAPE_CPU_ISA=", wanted,
                    ", but this machine or this build supports at most ", best_cpu_isa());
        return CpuIsa(i);
      }
    detail::fail<UsageError>("RINGTAPE_CPU_ISA=", wanted, ": expected one of portable avx2 avx512");
  }();
  return isa;
}

CpuIsa cpu_isa() { return current().load(std::memory_order_relaxed); }

void set_cpu_isa(CpuIsa isa) {
  RT_CHECK_AS(DeviceError, isa <= best_cpu_isa(), isa,
              " is not available: this machine or this build supports at most ", best_cpu_isa());
  current() = isa;
}

}  // namespace ringtape
