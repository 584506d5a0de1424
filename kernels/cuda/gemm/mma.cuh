#pragma once
// The tensor cores' instructions, as PTX names them (PTX ISA, "Warp-level Matrix Instructions"). All 32 lanes of a warp
// take part. A fragment is the part of a matrix that a lane has in registers, two 16-bit elements in each. For lane
// 4 g + t, and elements 2 t and 2 t + 1 of a row:
//   a (16 x 16): row g, row g + 8, and the same rows 8 columns further on; b (16 x 8): column g, and 8 rows further on;
//   d (16 x 8, float): row g, row g + 8.
// A matrix in shared memory has 8 rows of 16 bytes; a lane has elements 2 t and 2 t + 1 of its row g. The address of
// row i of matrix m is lane 8 m + i's, a multiple of 16; `_trans` exchanges rows and columns.
//
//   mma<T>(d, a, b)            d += a b; T is bf16 or f16. Sums are cut, not rounded: emulation/tensor_core.h
//   mma_tf32(d, a, b)          a is 16 x 8, b 8 x 8 floats, one in each register, 4 further on in place of 8
//   to_tf32(x)                 the bits of a float, rounded to TF32's 11 bits of significand, ties away from zero
//   ldmatrix(to, row)          1, 2 or 4 matrices to registers, by the length of `to`; ldmatrix_trans
//   stmatrix(row, from)        ... from registers; stmatrix_trans
//   movmatrix_trans(x)         a matrix in one register of each lane, transposed
#include "kernels/cuda/launch.cuh"

#if defined(__CUDACC__)  // the emulation has its own in emulation/device_matrix.h

namespace ringtape::cuda {
namespace {

__device__ inline uint32_t shared_address(const void* p) { return uint32_t(__cvta_generic_to_shared(p)); }

template <class T> __device__ inline void mma(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  static_assert(is_half_v<T>);
  if constexpr (std::is_same_v<T, bf16>)
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  else
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

__device__ inline void mma_tf32(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

__device__ inline uint32_t to_tf32(uint32_t x) {
  asm("cvt.rna.tf32.f32 %0, %0;" : "+r"(x));
  return x;
}

#define RT_LDMATRIX(name, trans)                                                            \
  template <int N> __device__ inline void name(uint32_t(&to)[N], const void* row) {         \
    static_assert(N == 1 || N == 2 || N == 4);                                              \
    const uint32_t at = shared_address(row);                                                \
    if constexpr (N == 1)                                                                   \
      asm volatile("ldmatrix.sync.aligned.m8n8.x1" trans ".shared.b16 {%0}, [%1];"          \
                   : "=r"(to[0])                                                            \
                   : "r"(at)                                                                \
                   : "memory");                                                             \
    else if constexpr (N == 2)                                                              \
      asm volatile("ldmatrix.sync.aligned.m8n8.x2" trans ".shared.b16 {%0,%1}, [%2];"       \
                   : "=r"(to[0]), "=r"(to[1])                                               \
                   : "r"(at)                                                                \
                   : "memory");                                                             \
    else                                                                                    \
      asm volatile("ldmatrix.sync.aligned.m8n8.x4" trans ".shared.b16 {%0,%1,%2,%3}, [%4];" \
                   : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])                     \
                   : "r"(at)                                                                \
                   : "memory");                                                             \
  }
RT_LDMATRIX(ldmatrix, "")
RT_LDMATRIX(ldmatrix_trans, ".trans")
#undef RT_LDMATRIX

__device__ inline uint32_t movmatrix_trans(uint32_t x) {
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %0;" : "+r"(x));
  return x;
}

// Before sm_90 there is no such instruction: each lane stores its elements itself, those of a transposed matrix after
// movmatrix.
#if __CUDA_ARCH__ >= 900
#define RT_STMATRIX(name, trans)                                                                                     \
  template <int N> __device__ inline void name(void* row, const uint32_t(&from)[N]) {                                \
    static_assert(N == 1 || N == 2 || N == 4);                                                                       \
    const uint32_t at = shared_address(row);                                                                         \
    if constexpr (N == 1)                                                                                            \
      asm volatile("stmatrix.sync.aligned.m8n8.x1" trans ".shared.b16 [%0], {%1};" ::"r"(at), "r"(from[0])           \
                   : "memory");                                                                                      \
    else if constexpr (N == 2)                                                                                       \
      asm volatile("stmatrix.sync.aligned.m8n8.x2" trans ".shared.b16 [%0], {%1,%2};" ::"r"(at), "r"(from[0]),       \
                   "r"(from[1])                                                                                      \
                   : "memory");                                                                                      \
    else                                                                                                             \
      asm volatile("stmatrix.sync.aligned.m8n8.x4" trans ".shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(at), "r"(from[0]), \
                   "r"(from[1]), "r"(from[2]), "r"(from[3])                                                          \
                   : "memory");                                                                                      \
  }
RT_STMATRIX(stmatrix, "")
RT_STMATRIX(stmatrix_trans, ".trans")
#undef RT_STMATRIX
#else
template <int N> __device__ inline void stmatrix(void* row, const uint32_t (&from)[N]) {
  static_assert(N == 1 || N == 2 || N == 4);
  const uint32_t at = shared_address(row);
  uint32_t lane;
  asm("mov.u32 %0, %%laneid;" : "=r"(lane));
  for (uint32_t m = 0; m < N; ++m) {
    const uint32_t to = __shfl_sync(~0u, at, int(8 * m + lane / 4)) + lane % 4 * 4;
    asm volatile("st.shared.b32 [%0], %1;" ::"r"(to), "r"(from[m]) : "memory");
  }
}
template <int N> __device__ inline void stmatrix_trans(void* row, const uint32_t (&from)[N]) {
  uint32_t transposed[N];
  for (int m = 0; m < N; ++m) transposed[m] = movmatrix_trans(from[m]);
  stmatrix(row, transposed);
}
#endif

}  // namespace
}  // namespace ringtape::cuda

#endif
