#pragma once
// Each file under kernels/cpu/ is compiled once per instruction set (CMake defines RT_ISA as portable, avx2 or avx512).
// Between RT_ISA_BEGIN and RT_ISA_END it is in namespace ringtape::cpu::RT_ISA and compiled for that set;
// kernels/kernel.h picks one at run time. All #includes stand above RT_ISA_BEGIN: an inline function of the standard
// library that was compiled for AVX-512 could be the copy that the linker keeps for all.
#ifndef RT_ISA
#error "kernels/cpu files are compiled with -DRT_ISA=portable|avx2|avx512"
#endif

#define RT_ISA_portable 1
#define RT_ISA_avx2 2
#define RT_ISA_avx512 3
#define RT_ISA_CAT_(a, b) a##b
#define RT_ISA_CAT(a, b) RT_ISA_CAT_(a, b)
#define RT_ISA_LEVEL RT_ISA_CAT(RT_ISA_, RT_ISA)

#if RT_ISA_LEVEL == RT_ISA_avx512
#define RT_ISA_TARGET _Pragma("GCC target(\"avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c,bmi2,prefer-vector-width=512\")")
#elif RT_ISA_LEVEL == RT_ISA_avx2
#define RT_ISA_TARGET _Pragma("GCC target(\"avx2,fma,f16c,bmi2,prefer-vector-width=256\")")
#else
#define RT_ISA_TARGET
#endif
#define RT_ISA_BEGIN _Pragma("GCC push_options") RT_ISA_TARGET namespace ringtape::cpu::RT_ISA {
#define RT_ISA_END } _Pragma("GCC pop_options")

// For functions that a vectorised loop calls: left to itself, the compiler does not inline all of them.
#define RT_INLINE [[gnu::always_inline]] inline

RT_ISA_BEGIN
inline constexpr int kVectorBytes = RT_ISA_LEVEL == RT_ISA_avx512 ? 64 : RT_ISA_LEVEL == RT_ISA_avx2 ? 32 : 16;
RT_ISA_END
