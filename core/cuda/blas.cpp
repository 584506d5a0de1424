#include "core/cuda/blas.h"

#include <array>
#include <atomic>
#include <mutex>

#include "core/cuda/device.h"
#include "core/cuda/memory.h"
#include "core/device.h"

namespace ringtape::cuda {

void fail(cublasStatus_t status, const char* what, const char* file, int line) {
  cudaGetLastError();
  const std::string said = concat(cublasLtGetStatusName(status), ": ", cublasLtGetStatusString(status));
  const std::string message = concat(what, " failed: ", said, " (", file, ":", line, ")");
  if (status == CUBLAS_STATUS_ALLOC_FAILED) throw OutOfMemory(message);
  throw DeviceError(message);
}

static const Blas* make_blas(int index) {
  constexpr size_t kMiB = size_t{1} << 20;
  use(index);
  const AllowWhileRecording allow;
  Blas made{nullptr, nullptr, (properties(index).major >= 9 ? 32 : 8) * kMiB};  // cuBLAS's own default
  RT_GPU_CHECK(cudaMalloc(&made.workspace, made.workspace_bytes));
  RT_GPU_CHECK(cublasLtCreate(&made.handle));
  return new Blas(made);
}

const Blas& blas(int index) {
  static auto* const known = new std::array<std::atomic<const Blas*>, kMaxDevices>{};
  static auto* const first_use = new std::mutex;
  std::atomic<const Blas*>& slot = (*known)[size_t(index)];
  if (const Blas* made = slot.load(std::memory_order_acquire)) return *made;
  const std::lock_guard lock(*first_use);
  if (!slot.load()) slot.store(make_blas(index), std::memory_order_release);
  return *slot.load();
}

}  // namespace ringtape::cuda
