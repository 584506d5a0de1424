#pragma once
// Each file under kernels/cpu/ is compiled once per instruction set (CMake defines RT_ISA as portable, avx2 ...).
// Between RT_ISA_BEGIN and RT_ISA_END it is in namespace ringtape::cpu::RT_ISA and compiled for that set;
// kernels/kernel.h selects one at run time. All #includes must be above RT_ISA_BEGIN: otherwise the linker could keep a
// copy of a standard inline function that was compiled for AVX-512 for the whole program.
#ifndef RT_ISA
#error "kernels/cpu files are compiled with -DRT_ISA=portable|avx2|avx512|neon"
#endif

#define RT_ISA_portable 1
#define RT_ISA_avx2 2
#define RT_ISA_avx512 3
#define RT_ISA_neon 4
#define RT_ISA_CAT_(a, b) a##b
#define RT_ISA_CAT(a, b) RT_ISA_CAT_(a, b)
#define RT_ISA_LEVEL RT_ISA_CAT(RT_ISA_, RT_ISA)

#if RT_ISA_LEVEL == RT_ISA_avx512
#ifdef __clang__  // its assembler refuses in asm() what the target lacks; it generates none of these by itself
#define RT_ISA_UNITS ",avx512bf16,amx-tile,amx-bf16"
#else
#define RT_ISA_UNITS
#endif
#define RT_ISA_FEATURES "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c,bmi2" RT_ISA_UNITS
#define RT_ISA_WIDTH ",prefer-vector-width=512"
#elif RT_ISA_LEVEL == RT_ISA_avx2
#define RT_ISA_FEATURES "avx2,fma,f16c,bmi2"
#define RT_ISA_WIDTH ",prefer-vector-width=256"
#endif
#define RT_ISA_PRAGMA(text) _Pragma(#text)
#ifndef RT_ISA_FEATURES
#define RT_ISA_PUSH
#define RT_ISA_POP
#elif defined(__clang__)
#define RT_ISA_ATTRIBUTE(features) \
  RT_ISA_PRAGMA(clang attribute push(__attribute__((target(features))), apply_to = function))
#define RT_ISA_PUSH RT_ISA_ATTRIBUTE(RT_ISA_FEATURES)
#define RT_ISA_POP _Pragma("clang attribute pop")
#else
#define RT_ISA_TARGET(features) RT_ISA_PRAGMA(GCC target(features))
#define RT_ISA_PUSH _Pragma("GCC push_options") RT_ISA_TARGET(RT_ISA_FEATURES RT_ISA_WIDTH)
#define RT_ISA_POP _Pragma("GCC pop_options")
#endif
#define RT_ISA_BEGIN                \
  namespace ringtape::cpu::RT_ISA { \
  RT_ISA_PUSH  // g++ 14 drops what follows a _Pragma in a macro
#define RT_ISA_END \
  }                \
  RT_ISA_POP

// For functions that a vectorised loop calls: the compiler does not inline all of them by itself.
#define RT_INLINE [[gnu::always_inline]] inline
#define RT_INLINE_LAMBDA __attribute__((always_inline))  // behind the parameters

// RT_IVDEP: before a loop whose iterations are independent although its pointers might alias. RT_NO_VECTORIZE: before a
// function whose loops do not gain from vectors. Both affect only speed, and only with GCC.
#ifdef __clang__
#define RT_IVDEP
#define RT_NO_VECTORIZE
#else
#define RT_IVDEP RT_ISA_PRAGMA(GCC ivdep)
#define RT_NO_VECTORIZE [[gnu::optimize("no-tree-vectorize")]]
#endif

namespace ringtape::cpu::RT_ISA {
inline constexpr int kVectorBytes = RT_ISA_LEVEL == RT_ISA_avx512 ? 64 : RT_ISA_LEVEL == RT_ISA_avx2 ? 32 : 16;
}  // namespace ringtape::cpu::RT_ISA
