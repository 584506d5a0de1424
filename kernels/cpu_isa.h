#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

namespace ringtape {

// The instruction sets that CPU kernels can be compiled for: x86-64's, each better than the one before, and Arm's.
enum class CpuIsa : uint8_t { portable, avx2, avx512, neon };
inline constexpr int kCpuIsas = 4;
std::string_view name_of(CpuIsa isa);

// Those that both this build and this machine have, the best one last. Throws DeviceError if there is none.
const std::vector<CpuIsa>& cpu_isas();

// The one in use: the best one, or that of RINGTAPE_CPU_ISA.
CpuIsa cpu_isa();
void set_cpu_isa(CpuIsa isa);  // for tests and benchmarks; throws DeviceError unless cpu_isas() has it

// What cpu_isas() returns if a build has the first and a machine the second of these, in order.
std::vector<CpuIsa> usable_cpu_isas(const std::vector<CpuIsa>& built, const std::vector<CpuIsa>& machine);

}  // namespace ringtape
