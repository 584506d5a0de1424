#pragma once
#include <cuda_runtime_api.h>

#include <memory>

// GPU memory and events that processes share (CUDA's IPC).
namespace ringtape::comm::cuda {

// Memory of this process that others may open. Allocated by cudaMalloc, because pool memory cannot be exported.
class ExportedMemory {
 public:
  ExportedMemory(int index, size_t bytes);
  ~ExportedMemory();  // the others must have closed it before
  ExportedMemory(const ExportedMemory&) = delete;
  ExportedMemory& operator=(const ExportedMemory&) = delete;
  char* data() const { return data_; }
  cudaIpcMemHandle_t handle() const;

 private:
  const int index_;
  char* data_ = nullptr;
};

// Memory of another process, for device `index`. Throws CommError if it cannot be opened.
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

// An event that one process records and others wait for. A wait refers to the last record before it.
class SharedEvent {
 public:
  explicit SharedEvent(int index);                             // this process records it
  SharedEvent(int index, const cudaIpcEventHandle_t& handle);  // another process records it
  ~SharedEvent();
  SharedEvent(SharedEvent&& other) noexcept;
  cudaIpcEventHandle_t handle() const;
  void record(cudaStream_t stream);
  void wait_on(cudaStream_t stream) const;

 private:
  cudaEvent_t event_ = nullptr;
};

}  // namespace ringtape::comm::cuda
