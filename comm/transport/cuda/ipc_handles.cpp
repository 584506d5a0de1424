#include "comm/transport/cuda/ipc_handles.h"

#include <utility>

#include "core/cuda/check.h"
#include "core/cuda/device.h"

namespace ringtape::comm::cuda {

using namespace ringtape::cuda;

ExportedMemory::ExportedMemory(int index, size_t bytes) : index_(index) {
  use(index);
  RT_GPU_CHECK(cudaMalloc(reinterpret_cast<void**>(&data_), bytes));
}

ExportedMemory::~ExportedMemory() {
  use_in_destructor(index_);
  if (cudaFree(data_) != cudaSuccess) cudaGetLastError();
}

cudaIpcMemHandle_t ExportedMemory::handle() const {
  cudaIpcMemHandle_t handle;
  RT_GPU_CHECK(cudaIpcGetMemHandle(&handle, data_));
  return handle;
}

OpenedMemory::OpenedMemory(int index, const cudaIpcMemHandle_t& handle, int peer) : index_(index) {
  use(index);
  const cudaError_t status =
      cudaIpcOpenMemHandle(reinterpret_cast<void**>(&data_), handle, cudaIpcMemLazyEnablePeerAccess);
  if (status == cudaSuccess) return;
  cudaGetLastError();
  RT_CHECK_AS(CommError, false, "ipc: cuda:", index, " cannot reach the memory of rank ", peer, "'s GPU (",
              cudaGetErrorName(status),
              "); its GPU must be one that peers with this one, visible to this process, in the same IPC namespace "
              "(docker: --ipc=host); "
              "use nccl otherwise");
}

OpenedMemory::~OpenedMemory() {
  use_in_destructor(index_);
  if (cudaIpcCloseMemHandle(data_) != cudaSuccess) cudaGetLastError();
}

SharedEvent::SharedEvent(int index) {
  use(index);
  RT_GPU_CHECK(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming | cudaEventInterprocess));
}

SharedEvent::SharedEvent(int index, const cudaIpcEventHandle_t& handle) {
  use(index);
  RT_GPU_CHECK(cudaIpcOpenEventHandle(&event_, handle));
}

SharedEvent::~SharedEvent() {
  if (event_ && cudaEventDestroy(event_) != cudaSuccess) cudaGetLastError();
}

SharedEvent::SharedEvent(SharedEvent&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}

cudaIpcEventHandle_t SharedEvent::handle() const {
  cudaIpcEventHandle_t handle;
  RT_GPU_CHECK(cudaIpcGetEventHandle(&handle, event_));
  return handle;
}

void SharedEvent::record(cudaStream_t stream) { RT_GPU_CHECK(cudaEventRecord(event_, stream)); }

void SharedEvent::wait_on(cudaStream_t stream) const {
  RT_GPU_CHECK(cudaStreamWaitEvent(stream, event_, cudaEventWaitDefault));
}

}  // namespace ringtape::comm::cuda
