#pragma once
#include <cstdint>
#include <type_traits>

#include "core/view.h"
#include "kernels/cpu_isa.h"

namespace ringtape {

template <class Sig> class Kernel;

// How many kernels this thread has called: what a Kernel gets is in use until this changes.
inline constinit thread_local uint64_t kernel_calls = 0;

// One name, one signature, one slot per device type (per instruction set on the CPU). A call checks that all Views with
// data are on the device of the first, and runs that device's slot. Outputs come first.
template <class... Args> class Kernel<void(Args...)> {
 public:
  using Fn = void (*)(Args...);
  constexpr Kernel(const char* name, Fn portable, Fn avx2, Fn avx512, Fn neon, Fn cuda)
      : name_(name), cpu_{portable, avx2, avx512, neon}, cuda_(cuda) {}

  constexpr const char* name() const { return name_; }
  bool has(DeviceType type) const { return type == DeviceType::cpu || cuda_; }
  bool has(CpuIsa isa) const { return cpu_[int(isa)]; }
  void operator()(std::type_identity_t<Args>... args) const { run(args...); }

 private:
  template <class... Rest> void run(const View& first, const Rest&... rest) const {
    (same_device(first, rest), ...);
    const Fn fn = first.device.type == DeviceType::cpu ? cpu_[int(cpu_isa())] : cuda_;
    RT_CHECK_AS(DeviceError, fn, name_, " has no kernel for ", first.device,
                first.device.type == DeviceType::cpu ? " (kernels/cpu does not define it)"
                                                     : " (built without CUDA: reconfigure with -DRINGTAPE_CUDA=ON)");
    fn(first, rest...);
    ++kernel_calls;
  }
  template <class T> void same_device(const View& first, const T& arg) const {
    if constexpr (std::is_same_v<T, View>)
      RT_CHECK_AS(DeviceError, arg.device == first.device || !arg.data, name_, ": operands on ", first.device, " and ",
                  arg.device, "; move one with to(x, device)");
  }

  const char* name_;
  Fn cpu_[kCpuIsas];
  Fn cuda_;
};

// What a build leaves out (CUDA; instruction sets, by CMake's RINGTAPE_ISAS) is a weak symbol without a definition: an
// empty slot. So objects are the same with and without it.
#ifdef RT_ISA  // a definition of one of them; as a weak symbol it would not be inlined
#define RT_CPU_SLOT
#else
#define RT_CPU_SLOT [[gnu::weak]]
#endif
#define RT_KERNEL_SLOTS(name, ...)                      \
  namespace cpu::portable {                             \
  RT_CPU_SLOT std::type_identity_t<__VA_ARGS__> name;   \
  }                                                     \
  namespace cpu::avx2 {                                 \
  RT_CPU_SLOT std::type_identity_t<__VA_ARGS__> name;   \
  }                                                     \
  namespace cpu::avx512 {                               \
  RT_CPU_SLOT std::type_identity_t<__VA_ARGS__> name;   \
  }                                                     \
  namespace cpu::neon {                                 \
  RT_CPU_SLOT std::type_identity_t<__VA_ARGS__> name;   \
  }                                                     \
  namespace cuda {                                      \
  [[gnu::weak]] std::type_identity_t<__VA_ARGS__> name; \
  }

// Declares the kernel's implementations and the callable ringtape::name. CPU kernels do not see the callable: they call
// functions of their own instruction set. nvcc does not see it either, because it does not accept a weak address as a
// constant.
#if defined(RT_ISA) || defined(__CUDACC__)
#define RT_KERNEL(name, ...) RT_KERNEL_SLOTS(name, __VA_ARGS__) static_assert(true)
#else
#define RT_KERNEL(name, ...)                                                                    \
  RT_KERNEL_SLOTS(name, __VA_ARGS__)                                                            \
  inline constexpr Kernel<__VA_ARGS__> name {                                                   \
#name, cpu::portable::name, cpu::avx2::name, cpu::avx512::name, cpu::neon::name, cuda::name \
  }
#endif

}  // namespace ringtape
