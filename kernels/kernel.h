#pragma once
#include <type_traits>

#include "core/view.h"

namespace ringtape {

// The instruction sets that CPU kernels are compiled for. The best one of this machine is used.
// RINGTAPE_CPU_ISA=portable|avx2|avx512 selects one.
enum class CpuIsa : uint8_t { portable, avx2, avx512 };
inline constexpr int kCpuIsas = 3;
std::string_view name_of(CpuIsa isa);
CpuIsa cpu_isa();                     // the one in use
CpuIsa best_cpu_isa();                // the best one of this machine and this build
void set_cpu_isa(CpuIsa isa);         // for tests and benchmarks; throws DeviceError above best_cpu_isa()

template <class Sig> class Kernel;

// One name, one signature, one slot per device type (per instruction set on the CPU). A call checks that all Views with
// data are on the device of the first, and runs that device's slot. Outputs come first.
template <class... Args>
class Kernel<void(Args...)> {
 public:
  using Fn = void (*)(Args...);
  constexpr Kernel(const char* name, Fn portable, Fn avx2, Fn avx512, Fn cuda)
      : name_(name), cpu_{portable, avx2, avx512}, cuda_(cuda) {}

  constexpr const char* name() const { return name_; }
  constexpr bool has(DeviceType type) const { return type == DeviceType::cpu || cuda_; }
  void operator()(std::type_identity_t<Args>... args) const { run(args...); }

 private:
  template <class... Rest>
  void run(const View& first, const Rest&... rest) const {
    (same_device(first, rest), ...);
    const Fn fn = first.device.type == DeviceType::cpu ? cpu_[int(cpu_isa())] : cuda_;
    RT_CHECK_AS(DeviceError, fn, name_, " has no kernel for ", first.device,
                " (built without CUDA: reconfigure with -DRINGTAPE_CUDA=ON)");
    fn(first, rest...);
  }
  template <class T>
  void same_device(const View& first, const T& arg) const {
    if constexpr (std::is_same_v<T, View>)
      RT_CHECK_AS(DeviceError, arg.device == first.device || !arg.data, name_, ": operands on ", first.device, " and ",
                  arg.device, "; move one with to(x, device)");
  }

  const char* name_;
  Fn cpu_[kCpuIsas];
  Fn cuda_;
};

// Slots are empty for instruction sets that the build leaves out (CMake's RINGTAPE_ISAS; processors other than x86).
#if defined(__x86_64__) && !defined(RINGTAPE_NO_AVX2)
#define RT_AVX2_SLOT(fn) fn
inline constexpr bool kHasAvx2 = true;
#else
#define RT_AVX2_SLOT(fn) nullptr
inline constexpr bool kHasAvx2 = false;
#endif
#if defined(__x86_64__) && !defined(RINGTAPE_NO_AVX512)
#define RT_AVX512_SLOT(fn) fn
inline constexpr bool kHasAvx512 = true;
#else
#define RT_AVX512_SLOT(fn) nullptr
inline constexpr bool kHasAvx512 = false;
#endif

#define RT_KERNEL_SLOTS(name, ...)                                      \
  namespace cpu::portable { std::type_identity_t<__VA_ARGS__> name; }   \
  namespace cpu::avx2 { std::type_identity_t<__VA_ARGS__> name; }       \
  namespace cpu::avx512 { std::type_identity_t<__VA_ARGS__> name; }     \
  namespace cuda { [[gnu::weak]] std::type_identity_t<__VA_ARGS__> name; }

// Declares the kernel's implementations and the callable ringtape::name. A missing CPU implementation is a link error
// that names it. A missing CUDA implementation is an empty slot, so that callers are the same with and without CUDA.
// CPU kernels do not see the callable: they call functions of their own instruction set. nvcc does not see it either,
// because it does not accept a weak address as a constant.
#if defined(RT_ISA) || defined(__CUDACC__)
#define RT_KERNEL(name, ...) RT_KERNEL_SLOTS(name, __VA_ARGS__) static_assert(true)
#else
#define RT_KERNEL(name, ...)                                                                              \
  RT_KERNEL_SLOTS(name, __VA_ARGS__)                                                                      \
  inline constexpr Kernel<__VA_ARGS__> name{#name, cpu::portable::name, RT_AVX2_SLOT(cpu::avx2::name),    \
                                            RT_AVX512_SLOT(cpu::avx512::name), cuda::name}
#endif

}  // namespace ringtape
