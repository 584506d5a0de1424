#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "tests/emulation/kernel.h"
#include "tests/emulation/report.h"

namespace ringtape::emulation {

// Executes a grid, now, on the calling OS thread: `body` once for each of its threads. One grid runs at a time. Returns when
// all threads are done, or, after a report that leaves no way to go on, without the rest of them.
void run_grid(const Kernel& kernel, dim3 blocks, dim3 threads, size_t shared_bytes, const std::function<void()>& body);

// Defined with the CUDA runtime: checks the configuration, and calls run_grid when it is the stream's turn.
cudaError_t enqueue_kernel(const Kernel& kernel, dim3 blocks, dim3 threads, size_t shared_bytes, cudaStream_t stream,
                           std::function<void()> body);

inline constexpr int kMaxThreads = 1024;                  // of a block
inline constexpr size_t kMaxSharedBytes = 227 * 1024;     // of a block, static and dynamic
inline constexpr size_t kMaxStaticSharedBytes = 48 * 1024;

std::string running_thread();  // "kernel softmax_forward<float>, block (0,0,0), thread (3,0,0)"; empty outside kernels

// What device.h is made of.
void enter_kernel();
void leave_kernel();
int barrier(bool predicate, Place place);                 // how many threads of the block passed true
uint64_t atomic_load(const void* p, size_t bytes);        // the first half of an atomic operation: nothing else runs in between
void atomic_store(void* p, size_t bytes, uint64_t bits);
void thread_fence();
void cached_read(const void* p, size_t bytes);            // before __ldg
[[noreturn]] void trap(const char* what, Place place);    // reports and abandons the grid

}  // namespace ringtape::emulation
