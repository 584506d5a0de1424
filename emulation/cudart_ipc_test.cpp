// The stand-in for the CUDA runtime: memory and events shared by processes.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <vector>

#include "emulation/cudart.h"
#include "emulation/scheduler.h"

namespace ringtape::emulation {
namespace {

constexpr size_t kBytes = 10000;  // not a whole number of pages
#define OK(call) ASSERT_EQ((call), cudaSuccess)

class CudartIpc : public testing::Test {
 protected:
  void SetUp() override {
    set_gpu({.devices = 1, .memory_bytes = size_t{64} << 20});
    OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    OK(cudaMalloc(&memory, kBytes));
    OK(cudaMemset(memory, 1, kBytes));
    OK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming | cudaEventInterprocess));
  }
  void TearDown() override {
    cudaEventDestroy(event);
    cudaStreamDestroy(stream);
    OK(cudaFree(memory));
  }
  cudaStream_t stream = nullptr;
  cudaEvent_t event = nullptr;
  void* memory = nullptr;
};

TEST_F(CudartIpc, WhatCannotBeShared) {
  cudaIpcMemHandle_t handle;
  void* pooled = nullptr;
  OK(cudaMallocAsync(&pooled, kBytes, stream));
  EXPECT_EQ(cudaIpcGetMemHandle(&handle, pooled), cudaErrorInvalidValue);
  OK(cudaFreeAsync(pooled, stream));
  EXPECT_EQ(cudaIpcGetMemHandle(&handle, static_cast<char*>(memory) + 256), cudaErrorInvalidValue);
  OK(cudaIpcGetMemHandle(&handle, memory));
  void* own = nullptr;
  EXPECT_EQ(cudaIpcOpenMemHandle(&own, handle, cudaIpcMemLazyEnablePeerAccess), cudaErrorInvalidResourceHandle)
      << "in its own process";
  EXPECT_EQ(cudaIpcCloseMemHandle(memory), cudaErrorInvalidValue);
  cudaEvent_t other = nullptr;
  EXPECT_EQ(cudaEventCreateWithFlags(&other, cudaEventInterprocess), cudaErrorInvalidValue) << "it would be timed";
  cudaIpcEventHandle_t event_handle;
  OK(cudaEventCreateWithFlags(&other, cudaEventDisableTiming));
  EXPECT_EQ(cudaIpcGetEventHandle(&event_handle, other), cudaErrorInvalidResourceHandle);
  OK(cudaEventDestroy(other));
  cudaGetLastError();
}

// Writes of the other process are visible once its event is recorded, even if that process does not wait; not earlier.
TEST_F(CudartIpc, MemoryOfAnotherProcess) {
  for (const bool records : {true, false}) {
    cudaIpcMemHandle_t handle;
    OK(cudaMemset(memory, 1, kBytes));
    OK(cudaIpcGetMemHandle(&handle, memory));
    const pid_t child = ::fork();
    if (child == 0) {
      void* opened = nullptr;
      bool well = cudaIpcOpenMemHandle(&opened, handle, cudaIpcMemLazyEnablePeerAccess) == cudaSuccess;
      std::vector<char> seen(kBytes);
      well = well && cudaMemcpy(seen.data(), opened, kBytes, cudaMemcpyDeviceToHost) == cudaSuccess &&
             seen == std::vector<char>(kBytes, 1);
      well = well && cudaFree(opened) == cudaErrorInvalidValue;
      well = well && cudaMemsetAsync(opened, 2, kBytes, stream) == cudaSuccess;
      if (records)
        well = well && cudaEventRecord(event, stream) == cudaSuccess && cudaIpcCloseMemHandle(opened) == cudaSuccess;
      ::_exit(well ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    std::vector<char> seen(kBytes);
    OK(cudaMemcpy(seen.data(), memory, kBytes, cudaMemcpyDeviceToHost));
    EXPECT_EQ(seen, std::vector<char>(kBytes, records ? 2 : 1));
  }
}

}  // namespace
}  // namespace ringtape::emulation
