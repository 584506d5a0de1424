#pragma once
// The instructions of kernels/cuda/gemm/mma.cuh and async.cuh, for device.h.
#include "core/dtype.h"
#include "emulation/async_copy.h"
#include "emulation/barriers.h"
#include "emulation/matrix.h"

// NOLINTBEGIN: names as PTX has them
namespace ringtape::cuda {

template <class T>
inline constexpr emulation::TensorType tensor_type =
    std::is_same_v<T, bf16> ? emulation::TensorType::bf16 : emulation::TensorType::f16;

template <class T> RT_INTRINSIC void mma(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], RT_PLACE) {
  static_assert(is_half_v<T>);
  emulation::multiply_matrices(tensor_type<T>, d, a, b, place);
}
RT_INTRINSIC void mma_tf32(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], RT_PLACE) {
  emulation::multiply_matrices(emulation::TensorType::tf32, d, a, b, place);
}
RT_INTRINSIC uint32_t to_tf32(uint32_t x) {
  return std::bit_cast<uint32_t>(emulation::rounded_to_tf32(std::bit_cast<float>(x)));
}
template <int N> RT_INTRINSIC void ldmatrix(uint32_t (&to)[N], const void* row, RT_PLACE) {
  emulation::load_matrices(row, to, N, false, place);
}
template <int N> RT_INTRINSIC void ldmatrix_trans(uint32_t (&to)[N], const void* row, RT_PLACE) {
  emulation::load_matrices(row, to, N, true, place);
}
template <int N> RT_INTRINSIC void stmatrix(void* row, const uint32_t (&from)[N], RT_PLACE) {
  emulation::store_matrices(row, from, N, false, place);
}
template <int N> RT_INTRINSIC void stmatrix_trans(void* row, const uint32_t (&from)[N], RT_PLACE) {
  emulation::store_matrices(row, from, N, true, place);
}
RT_INTRINSIC uint32_t movmatrix_trans(uint32_t x, RT_PLACE) {
  emulation::transpose_matrix(x, place);
  return x;
}

template <int bytes> RT_INTRINSIC void cp_async(void* to, const void* from, int valid = bytes, RT_PLACE) {
  static_assert(bytes == 4 || bytes == 8 || bytes == 16);
  emulation::copy_async(to, from, bytes, valid, place);
}
RT_INTRINSIC void cp_async_commit() { emulation::commit_copies(); }
template <int groups> RT_INTRINSIC void cp_async_wait() { emulation::wait_for_copies(groups); }

RT_INTRINSIC void bar_sync(int barrier, int threads, RT_PLACE) {
  emulation::named_barrier(barrier, threads, true, place);
}
RT_INTRINSIC void bar_arrive(int barrier, int threads, RT_PLACE) {
  emulation::named_barrier(barrier, threads, false, place);
}

RT_INTRINSIC void mbarrier_init(uint64_t* barrier, int count, RT_PLACE) {
  emulation::init_mbarrier(barrier, count, place);
}
RT_INTRINSIC void mbarrier_arrive(uint64_t* barrier, RT_PLACE) { emulation::arrive_at(barrier, place); }
RT_INTRINSIC void mbarrier_wait(uint64_t* barrier, int parity, RT_PLACE) { emulation::wait_at(barrier, parity, place); }
RT_INTRINSIC void cp_async_mbarrier_arrive(uint64_t* barrier, RT_PLACE) {
  emulation::arrive_after_copies(barrier, place);
}

}  // namespace ringtape::cuda
// NOLINTEND
