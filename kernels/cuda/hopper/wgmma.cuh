#pragma once
// Asynchronous products of a warpgroup, four warps that all execute them (PTX ISA, "Asynchronous Warpgroup Level Matrix
// Multiply-Accumulate"). Both operands lie in shared memory, in rows of 128 bytes of which a pattern of 8 begins at a
// multiple of 1024; row r of a pattern has its chunks of 16 bytes at their number ^ r. Lane 4 g + t of warp w has of
// rows 16 w + g and 16 w + g + 8, of each 8 columns, columns 2 t and 2 t + 1: d[4 j + 2 h + e] is row g + 8 h, column
// 8 j + 2 t + e.
//
//   wgmma_operand(p, leading, stride)   its descriptor. Along the depth: a pattern is 8 of the outer index, the next
//   one
//                                       `stride` bytes further; the next 16 of the depth 32 bytes. Along the outer
//                                       index: a pattern is 64 of it and 8 of the depth, the next 64 are `leading`
//                                       bytes further, the next 8 of the depth `stride`
//   wgmma_advance(operand, bytes)       the operand that begins further on
//   wgmma<T, N, a_outer, b_outer>(d, a, b, adds)   d (64 x 2 N) = a b^T of 16 of the depth, or += where `adds`; T is
//   bf16
//                                       or f16; `outer`: the operand lies along its outer index
//   wgmma_fence()                       before the first product of registers that others have used
//   wgmma_commit(), wgmma_wait<n>()     groups of products; waits until at most n of the newest go on. Before that
//   neither
//                                       d nor the operands may be touched
//   keep(d)                             before the fence and after the wait: the compiler leaves d alone in between
#include "kernels/cuda/hopper/hopper.cuh"

#if defined(__CUDACC__) && RT_HOPPER

#define RT_LIST_32_0                                                                                                   \
  "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30," \
  "%31"
#define RT_LIST_32_1                                                                                                  \
  "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%" \
  "60,%61,%62,%63"
#define RT_LIST_32_2                                                                                                  \
  "%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%" \
  "92,%93,%94,%95"
#define RT_LIST_32_3                                                                                                 \
  "%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111,%112,%113,%114,%115,%116,%117,%118,%" \
  "119,%120,%121,%122,%123,%124,%125,%126,%127"
#define RT_OUT_8(i)                                                                                           \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), \
      "+f"(d[i + 7])
#define RT_OUT_32(i) RT_OUT_8(i), RT_OUT_8(i + 8), RT_OUT_8(i + 16), RT_OUT_8(i + 24)
#define RT_WGMMA(type, n, list, a_at, b_at, adds_at, a_lies, b_lies, ...)                                      \
  asm volatile("{ .reg .pred p; setp.ne.b32 p, %" adds_at                                                      \
               ", 0;\n"                                                                                        \
               "wgmma.mma_async.sync.aligned.m64n" n "k16.f32." type "." type " {" list "}, %" a_at ", %" b_at \
               ", p, 1, 1, %" a_lies ", %" b_lies "; }"                                                        \
               : __VA_ARGS__                                                                                   \
               : "l"(a), "l"(b), "r"(int(adds)), "n"(int(a_outer)), "n"(int(b_outer)))
#define RT_WGMMA_OF(n, list, a_at, b_at, adds_at, a_lies, b_lies, ...)                                                \
  if constexpr (std::is_same_v<T, bf16>) RT_WGMMA("bf16", n, list, a_at, b_at, adds_at, a_lies, b_lies, __VA_ARGS__); \
  else RT_WGMMA("f16", n, list, a_at, b_at, adds_at, a_lies, b_lies, __VA_ARGS__)

namespace ringtape::cuda {
namespace {

template <class T, int N, bool a_outer = false, bool b_outer = false>
__device__ inline void wgmma(float (&d)[N], uint64_t a, uint64_t b, bool adds) {
  static_assert(is_half_v<T> && (N == 32 || N == 96 || N == 128));
  if constexpr (N == 32) {
    RT_WGMMA_OF("64", RT_LIST_32_0, "32", "33", "34", "35", "36", RT_OUT_32(0));
  } else if constexpr (N == 96) {
    RT_WGMMA_OF("192", RT_LIST_32_0 "," RT_LIST_32_1 "," RT_LIST_32_2, "96", "97", "98", "99", "100", RT_OUT_32(0),
                RT_OUT_32(32), RT_OUT_32(64));
  } else {
    RT_WGMMA_OF("256", RT_LIST_32_0 "," RT_LIST_32_1 "," RT_LIST_32_2 "," RT_LIST_32_3, "128", "129", "130", "131",
                "132", RT_OUT_32(0), RT_OUT_32(32), RT_OUT_32(64), RT_OUT_32(96));
  }
}
#undef RT_WGMMA_OF
#undef RT_WGMMA
#undef RT_OUT_32
#undef RT_OUT_8
#undef RT_LIST_32_3
#undef RT_LIST_32_2
#undef RT_LIST_32_1
#undef RT_LIST_32_0

__device__ inline void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ inline void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int groups> __device__ inline void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(groups) : "memory");
}
template <int N> __device__ inline void keep(float (&d)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

}  // namespace
}  // namespace ringtape::cuda

#endif

#if RT_HOPPER

namespace ringtape::cuda {
namespace {

__device__ inline uint64_t wgmma_operand(const void* p, uint32_t leading, uint32_t stride) {
  return uint64_t(shared_address(p) >> 4 & 0x3fff) | uint64_t(leading >> 4 & 0x3fff) << 16 |
         uint64_t(stride >> 4 & 0x3fff) << 32 | uint64_t{1} << 62;
}
__device__ inline uint64_t wgmma_advance(uint64_t operand, int bytes) { return operand + uint64_t(bytes >> 4); }

}  // namespace
}  // namespace ringtape::cuda

#endif
