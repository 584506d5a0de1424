#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "emulation/kernel.h"
#include "emulation/report.h"

namespace ringtape::emulation {

// Executes a grid immediately on the calling OS thread: `body` once for each of its threads. One grid runs at a time.
// Returns when all threads have finished, or earlier after a report of a fatal error.
void run_grid(const Kernel& kernel, dim3 blocks, dim3 threads, size_t shared_bytes, const std::function<void()>& body);

// Defined with the CUDA runtime: checks the configuration, and calls run_grid when the stream reaches it.
cudaError_t enqueue_kernel(const Kernel& kernel, dim3 blocks, dim3 threads, size_t shared_bytes, cudaStream_t stream,
                           std::function<void()> body);

inline constexpr int kMaxThreads = 1024;               // of a block
inline constexpr size_t kMaxSharedBytes = 227 * 1024;  // per block, static and dynamic
inline constexpr size_t kMaxStaticSharedBytes = 48 * 1024;

std::string running_thread();  // "kernel softmax_forward<float>, block (0,0,0), thread (3,0,0)"; empty outside kernels

// The functions behind device.h.
void enter_kernel();
void leave_kernel();
int barrier(bool predicate, Place place);  // number of threads of the block that passed true
uint64_t atomic_load(const void* p,
                     size_t bytes);  // the first half of an atomic operation; nothing runs between the halves
void atomic_store(void* p, size_t bytes, uint64_t bits);
void thread_fence();
void cached_read(const void* p, size_t bytes);          // before __ldg
[[noreturn]] void trap(const char* what, Place place);  // reports, and stops the grid

}  // namespace ringtape::emulation
