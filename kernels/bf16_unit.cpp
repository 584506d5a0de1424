#include "kernels/bf16_unit.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include <array>

#include "core/env.h"
#include "kernels/arithmetic.h"
#include "kernels/cpu_isa.h"

namespace ringtape {
namespace {

constexpr std::array<std::string_view, kBf16Units> kUnitNames = {"converted", "avx512_bf16", "amx"};

#if defined(__x86_64__)
bool cpuid_bit(unsigned subleaf, bool edx, int bit) {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(7, subleaf, &a, &b, &c, &d) && (edx ? d : a) >> bit & 1;
}

// Linux saves the tiles of a thread only if its process asked for that before.
bool tiles_permitted() {
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

bool machine_has(Bf16Unit unit) {
  if (unit == Bf16Unit::converted) return true;
  if (!__builtin_cpu_supports("avx512bw") || !cpuid_bit(1, false, 5)) return false;  // AMX comes with AVX512-BF16
  return unit == Bf16Unit::avx512_bf16 || (cpuid_bit(0, true, 22) && cpuid_bit(0, true, 24) && tiles_permitted());
}
// vdpbf16ps is as fast as the FMA of f32 on AMD's processors; Intel's Sapphire Rapids starts it a fourth as often.
bool pays(Bf16Unit unit) { return unit != Bf16Unit::avx512_bf16 || __builtin_cpu_is("amd"); }
#else
bool machine_has(Bf16Unit unit) { return unit == Bf16Unit::converted; }
bool pays(Bf16Unit) { return true; }
#endif

Bf16Unit best_unit() {
  const std::string& wanted = env::cpu_isa();
  for (const Bf16Unit unit : {Bf16Unit::amx, Bf16Unit::avx512_bf16})
    if (wanted.empty() ? has(unit) && pays(unit) : wanted == name_of(unit)) return unit;
  return Bf16Unit::converted;
}

}  // namespace

std::string_view name_of(Bf16Unit unit) { return kUnitNames[size_t(unit)]; }

bool has(Bf16Unit unit) {
  if (unit == Bf16Unit::converted) return true;
  static const bool avx512_bf16 = machine_has(Bf16Unit::avx512_bf16);  // a virtual machine's cpuid takes 20 us
  if (unit == Bf16Unit::avx512_bf16) return avx512_bf16;
  static const bool amx = machine_has(Bf16Unit::amx);
  return amx;
}

Bf16Choice bf16_choice() {
  const bool wide = cpu_isa() == CpuIsa::avx512;
  if (const auto now = arithmetic().bf16)
    return {now->unit, now->unit != Bf16Unit::converted && (now->emulated || !wide || !has(now->unit))};
  static const Bf16Unit best = best_unit();
  return {wide ? best : Bf16Unit::converted, false};
}

}  // namespace ringtape
