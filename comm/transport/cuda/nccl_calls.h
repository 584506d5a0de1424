#pragma once
#include <nccl.h>

#include <functional>
#include <utility>

#include "comm/transport/cuda/stream.h"
#include "core/cuda/check.h"

// Common parts of the transport over NCCL and of NCCL's collectives.
namespace ringtape::cuda {

void check(ncclResult_t status, const char* what, const char* file, int line);  // throws CommError

}  // namespace ringtape::cuda

namespace ringtape::comm::cuda {

// What calls of NCCL are made with.
class NcclTransport : public GpuTransport {
 public:
  using GpuTransport::GpuTransport;
  // Runs f, which calls NCCL, and waits until NCCL has accepted everything. Without f if the communicator was aborted.
  virtual void call(const std::function<void(ncclComm_t comm, cudaStream_t stream)>& f) = 0;
};

// NCCL's calls of f() as one group. If one fails, the group of this thread is closed all the same.
template <class F> void in_group(F&& f) {
  RT_GPU_CHECK(ncclGroupStart());
  try {
    f();
  } catch (...) {
    ncclGroupEnd();
    throw;
  }
  RT_GPU_CHECK(ncclGroupEnd());
}

}  // namespace ringtape::comm::cuda
