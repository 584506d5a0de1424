#pragma once
#include <cstdint>
#include <string_view>

// What multiplies matrices of bf16 in the CPU's kernels:
//   converted     f32 instructions, after a conversion
//   avx512_bf16   vdpbf16ps of AVX512-BF16: two products a lane (AMD from Zen 4 on, Intel Cooper Lake and later)
//   amx           tdpbf16ps of AMX: 16 x 16 sums of 32 products (Intel from Sapphire Rapids on)
// Sums are f32. f16 is always converted.
namespace ringtape {

enum class Bf16Unit : uint8_t { converted, avx512_bf16, amx };
inline constexpr int kBf16Units = 3;
std::string_view name_of(Bf16Unit unit);

// Whether this processor and its system have it. Asking for amx obtains Linux's permission for the process, which from
// then on wants alternate signal stacks of at least 11 KiB; where there is a smaller one, it has no amx.
bool has(Bf16Unit unit);

// An instruction that is emulated gives the same bits, slowly, with every instruction set: in tests, which alone have
// the emulation (kernels/cpu/vector/by_unit.h).
struct Bf16Choice {
  Bf16Unit unit = Bf16Unit::converted;
  bool emulated = false;
};

// The one in use: Arithmetic::bf16, else, if cpu_isa() is avx512, the fastest of this machine (avx512_bf16 on AMD's
// alone: on the Intel processor that was measured it is slower than `converted`), or that of RINGTAPE_CPU_ISA.
Bf16Choice bf16_choice();

}  // namespace ringtape
