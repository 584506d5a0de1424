#include "kernels/cpu_isa.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <iterator>
#include <string>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "core/check.h"
#include "core/env.h"
#include "kernels/bf16_unit.h"
#include "kernels/fill.h"

namespace ringtape {
namespace {

constexpr std::array<std::string_view, kCpuIsas> kNames = {"portable", "avx2", "avx512", "neon"};

std::string names_of(const std::vector<CpuIsa>& isas) {
  std::string names;
  for (const CpuIsa isa : isas) names += concat(names.empty() ? "" : " ", isa);
  return names;
}

// Every set that is built has all kernels, so any of them tells.
std::vector<CpuIsa> built_isas() {
  std::vector<CpuIsa> isas;
  for (int i = 0; i < kCpuIsas; ++i)
    if (fill.has(CpuIsa(i))) isas.push_back(CpuIsa(i));
  return isas;
}

#if defined(__x86_64__)
bool has_f16c() {  // __builtin_cpu_supports of clang 14 does not know it
  unsigned a, b, c, d;
  return __get_cpuid(1, &a, &b, &c, &d) && c & bit_F16C;
}
#endif

std::vector<CpuIsa> machine_isas() {
  std::vector<CpuIsa> isas = {CpuIsa::portable};
#if defined(__x86_64__)
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") || !has_f16c() ||
      !__builtin_cpu_supports("bmi2"))
    return isas;
  isas.push_back(CpuIsa::avx2);
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl"))
    isas.push_back(CpuIsa::avx512);
#elif defined(__aarch64__)
  isas.push_back(CpuIsa::neon);  // part of AArch64
#endif
  return isas;
}

CpuIsa checked(CpuIsa isa, std::string_view setting = "") {
  RT_CHECK_AS(DeviceError, std::ranges::count(cpu_isas(), isa), setting, isa,
              ": this machine or this build does not have it; expected one of ", names_of(cpu_isas()));
  return isa;
}

std::atomic<CpuIsa>& current() {
  static std::atomic<CpuIsa> isa = [] {
    const std::string& wanted = env::cpu_isa();
    if (wanted.empty()) return cpu_isas().back();
    for (const Bf16Unit unit : {Bf16Unit::avx512_bf16, Bf16Unit::amx})
      if (name_of(unit) == wanted) {
        RT_CHECK_AS(DeviceError, has(unit), "RINGTAPE_CPU_ISA=", wanted, ": this machine does not have it");
        return checked(CpuIsa::avx512, concat("RINGTAPE_CPU_ISA=", wanted, ": "));
      }
    for (int i = 0; i < kCpuIsas; ++i)
      if (kNames[size_t(i)] == wanted) return checked(CpuIsa(i), "RINGTAPE_CPU_ISA=");
    detail::fail<UsageError>(
        {"RINGTAPE_CPU_ISA=", wanted, ": expected one of portable avx2 avx512 avx512_bf16 amx neon"});
  }();
  return isa;
}

}  // namespace

std::string_view name_of(CpuIsa isa) { return kNames[size_t(isa)]; }

std::vector<CpuIsa> usable_cpu_isas(const std::vector<CpuIsa>& built, const std::vector<CpuIsa>& machine) {
  std::vector<CpuIsa> both;
  std::ranges::set_intersection(built, machine, std::back_inserter(both));
  RT_CHECK_AS(DeviceError, !both.empty(), "this build has CPU kernels for ", names_of(built),
              " only, and this processor has ", names_of(machine),
              "; build it on this machine, or for all with -DRINGTAPE_ISAS=all");
  return both;
}

const std::vector<CpuIsa>& cpu_isas() {
  static const std::vector<CpuIsa> isas = usable_cpu_isas(built_isas(), machine_isas());
  return isas;
}

CpuIsa cpu_isa() { return current().load(std::memory_order_relaxed); }

void set_cpu_isa(CpuIsa isa) { current() = checked(isa); }

}  // namespace ringtape
