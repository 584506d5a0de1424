#pragma once
#include <type_traits>

#include "core/check.h"
#include "kernels/bf16_unit.h"
#include "kernels/cpu/vector/isa.h"

// What the units for bf16 compute (kernels/bf16_unit.h). The files *_amx* and *_bf16* are compiled for AVX-512, whose
// processors may have the units; and once more for each instruction set with RT_EMULATED, which replaces their
// instructions by plain C++ with the same bits. Only tests link these: other programs have empty slots, as those of
// kernels/kernel.h.
#ifdef RT_EMULATED
#define RT_UNIT emulated
#else
#define RT_UNIT native
#endif

RT_ISA_BEGIN

template <class Sig> struct ByUnit;
template <class... Args> struct ByUnit<void(Args...)> {
  using Fn = void (*)(Args...);
  Fn native, emulated;
  void operator()(std::type_identity_t<Args>... args) const {
    const Bf16Choice choice = bf16_choice();
    const Fn fn = choice.emulated ? emulated : native;
    RT_CHECK_AS(DeviceError, fn, name_of(choice.unit), ": only tests emulate it");
    fn(args...);
  }
};

// Declares RT_UNIT::name, which those files define, and `name`, which calls that of the unit in use.
#define RT_BY_UNIT(name, ...)                           \
  namespace native {                                    \
  [[gnu::weak]] std::type_identity_t<__VA_ARGS__> name; \
  }                                                     \
  namespace emulated {                                  \
  [[gnu::weak]] std::type_identity_t<__VA_ARGS__> name; \
  }                                                     \
  inline constexpr ByUnit<__VA_ARGS__> name { native::name, emulated::name }

RT_ISA_END
