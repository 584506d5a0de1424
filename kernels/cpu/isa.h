#pragma once
// Include this last, after every other header, in each file under kernels/cpu/.
//
// Each such file is compiled once per instruction set (CMake defines RT_ISA as portable, avx2 or avx512) into
// namespace ringtape::cpu::RT_ISA, and kernels/kernel.h picks at run time. The target pragma starts here, below the
// standard headers, so that inline functions of the standard library keep the baseline instruction set: a copy built
// for AVX-512 could otherwise be the one that the linker keeps for all.
#ifndef RT_ISA
#error "kernels/cpu files are compiled with -DRT_ISA=portable|avx2|avx512"
#endif

#define RT_ISA_portable 1
#define RT_ISA_avx2 2
#define RT_ISA_avx512 3
#define RT_ISA_CAT_(a, b) a##b
#define RT_ISA_CAT(a, b) RT_ISA_CAT_(a, b)
#define RT_ISA_LEVEL RT_ISA_CAT(RT_ISA_, RT_ISA)

#if RT_ISA_LEVEL == 3
#define RT_ISA_TARGET _Pragma("GCC target(\"avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c,bmi2,prefer-vector-width=512\")")
#elif RT_ISA_LEVEL == 2
#define RT_ISA_TARGET _Pragma("GCC target(\"avx2,fma,f16c,bmi2,prefer-vector-width=256\")")
#else
#define RT_ISA_TARGET
#endif
// For functions that a vectorised loop calls: left to itself, the compiler gives up on some.
#define RT_INLINE [[gnu::always_inline]] inline

#define RT_ISA_BEGIN _Pragma("GCC push_options") RT_ISA_TARGET namespace ringtape::cpu::RT_ISA {
#define RT_ISA_END } _Pragma("GCC pop_options")

#if RT_ISA_LEVEL == 3
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c,bmi2,prefer-vector-width=512")
#elif RT_ISA_LEVEL == 2
#pragma GCC target("avx2,fma,f16c,bmi2,prefer-vector-width=256")
#endif

namespace ringtape::cpu::RT_ISA {
inline constexpr int kVectorBytes = RT_ISA_LEVEL == 3 ? 64 : RT_ISA_LEVEL == 2 ? 32 : 16;
}
