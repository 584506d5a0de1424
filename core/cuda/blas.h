#pragma once
#include <cublasLt.h>

#include <cstddef>

#include "core/cuda/check.h"

namespace ringtape::cuda {

[[noreturn]] void fail(cublasStatus_t status, const char* what, const char* file, int line);
inline void check(cublasStatus_t status, const char* what, const char* file, int line) {
  if (status != CUBLAS_STATUS_SUCCESS) [[unlikely]]
    fail(status, what, file, line);
}

// cuBLASLt on one device: made on first use, kept until the process ends. The workspace belongs to the compute stream,
// so that only one product uses it at a time.
struct Blas {
  cublasLtHandle_t handle;
  void* workspace;
  size_t workspace_bytes;
};
const Blas& blas(int index);

}  // namespace ringtape::cuda
