#pragma once
#include <cuda_runtime_api.h>

#include <memory>

// Memory and events of a GPU that processes share (CUDA's IPC).
namespace ringtape::comm::cuda {

// Memory of this process that others may open. cudaMalloc's own: what a pool gives cannot be exported.
class ExportedMemory {
 public:
  ExportedMemory(int index, size_t bytes);
  ~ExportedMemory();  // before then the others have closed it
  ExportedMemory(const ExportedMemory&) = delete;
  ExportedMemory& operator=(const ExportedMemory&) = delete;
  char* data() const { return data_; }
  cudaIpcMemHandle_t handle() const;

 private:
  const int index_;
  char* data_ = nullptr;
};

// Another process's, as device `index` sees it. Throws CommError where that cannot be.
class OpenedMemory {
 public:
  OpenedMemory(int index, const cudaIpcMemHandle_t& handle, int peer);
  ~OpenedMemory();
  OpenedMemory(const OpenedMemory&) = delete;
  OpenedMemory& operator=(const OpenedMemory&) = delete;
  char* data() const { return data_; }

 private:
  const int index_;
  char* data_ = nullptr;
};

// An event that one process records and others wait for: for what it recorded last before the call that waits.
class SharedEvent {
 public:
  explicit SharedEvent(int index);                                     // this process records it
  SharedEvent(int index, const cudaIpcEventHandle_t& handle);          // another does
  ~SharedEvent();
  SharedEvent(SharedEvent&& other) noexcept;
  cudaIpcEventHandle_t handle() const;
  void record(cudaStream_t stream);
  void wait_on(cudaStream_t stream) const;

 private:
  cudaEvent_t event_ = nullptr;
};

}  // namespace ringtape::comm::cuda
