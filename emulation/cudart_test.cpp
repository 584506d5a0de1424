// The stand-in for the CUDA runtime: errors of the host that it must detect, and correct uses that it must accept.
#include "emulation/cudart.h"

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstring>
#include <thread>
#include <vector>

#include "core/check.h"
#include "emulation/emulation.h"
#include "emulation/scheduler.h"
#include "tests/support/support.h"

namespace ringtape::emulation {
namespace {

using test::message_of;

constexpr size_t kCount = 64, kBytes = kCount * sizeof(int);
constexpr size_t kMiB = size_t{1} << 20;
#define OK(call) ASSERT_EQ((call), cudaSuccess)

std::vector<int> filled(int value) { return std::vector<int>(kCount, value); }

class Cudart : public testing::TestWithParam<Schedule> {
 protected:
  void SetUp() override {
    before_ = schedule();
    set_gpu({.devices = 2, .memory_bytes = 64 * kMiB});
    set_schedule(GetParam());
    OK(cudaSetDevice(0));
    OK(cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking));
    OK(cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking));
    OK(cudaMalloc(&device, kBytes));
    OK(cudaHostAlloc(&locked, kBytes, cudaHostAllocPortable));
    pinned = static_cast<int*>(locked);
    std::fill_n(pinned, kCount, 7);
    in_use_ = buffers_in_use();
  }
  void TearDown() override {
    cudaDeviceSynchronize();
    EXPECT_EQ(buffers_in_use(), in_use_) << "leaked";
    cudaStreamDestroy(a);
    cudaStreamDestroy(b);
    cudaFree(device);
    cudaFreeHost(locked);
    cudaGetLastError();
    set_schedule(before_);
  }

  // The only kind of error reported; clears the reports.
  std::string reported() {
    std::string kinds;
    for (const Report& r : reports()) kinds += kinds.empty() ? r.kind : " " + r.kind;
    clear_reports();
    return kinds;
  }
  std::vector<int> read(const void* from, cudaStream_t stream) {
    std::vector<int> x = filled(-5);
    EXPECT_EQ(cudaMemcpyAsync(x.data(), from, kBytes, cudaMemcpyDeviceToHost, stream), cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    return x;
  }

  cudaStream_t a = nullptr, b = nullptr;
  void *device = nullptr, *locked = nullptr;
  int* pinned = nullptr;

 private:
  Schedule before_ = Schedule::forward;
  size_t in_use_ = 0;
};
INSTANTIATE_TEST_SUITE_P(Schedules, Cudart, testing::Values(Schedule::forward, Schedule::reverse, Schedule::random),
                         [](const auto& info) { return std::string(name_of(info.param)); });

TEST_P(Cudart, RunsWhatIsInOrder) {
  cudaEvent_t ready = nullptr;
  OK(cudaEventCreateWithFlags(&ready, cudaEventDisableTiming));
  for (int round = 0; round < 20; ++round) {
    std::fill_n(pinned, kCount, round);
    OK(cudaMemcpyAsync(device, pinned, kBytes, cudaMemcpyHostToDevice, a));
    OK(cudaEventRecord(ready, a));
    OK(cudaStreamWaitEvent(b, ready, 0));
    EXPECT_EQ(read(device, b), filled(round));
  }
  OK(cudaEventDestroy(ready));
  EXPECT_EQ(reported(), "");
}

// Wrong values show it, but not under every schedule, as on a real GPU.
TEST_P(Cudart, AMissingEventShows) {
  int stale = 0;
  for (int round = 1; round <= 20; ++round) {
    OK(cudaMemsetAsync(device, 0, kBytes, b));
    OK(cudaStreamSynchronize(b));
    std::fill_n(pinned, kCount, round);
    OK(cudaMemcpyAsync(device, pinned, kBytes, cudaMemcpyHostToDevice, a));
    stale += read(device, b) != filled(round);  // b does not wait for a
    OK(cudaStreamSynchronize(a));
  }
  if (GetParam() == Schedule::forward) {
    EXPECT_EQ(stale, 20);
  }
  if (GetParam() == Schedule::reverse) {
    EXPECT_EQ(stale, 0);
  }
  if (GetParam() == Schedule::random) {
    EXPECT_TRUE(stale > 0 && stale < 20) << stale;
  }
}

TEST_P(Cudart, APinnedBufferWrittenTooEarlyShows) {
  OK(cudaMemcpyAsync(device, pinned, kBytes, cudaMemcpyHostToDevice, a));
  std::fill_n(pinned, kCount, 8);  // the copy has not run
  EXPECT_EQ(read(device, a), filled(8));
  std::vector<int> pageable = filled(9);
  OK(cudaMemcpyAsync(device, pageable.data(), kBytes, cudaMemcpyHostToDevice, a));
  pageable = filled(10);  // was staged at the call
  EXPECT_EQ(read(device, a), filled(9));
}

TEST_P(Cudart, AReadBeforeSynchronisingShows) {
  OK(cudaMemsetAsync(device, 0, kBytes, a));
  OK(cudaMemcpyAsync(pinned, device, kBytes, cudaMemcpyDeviceToHost, a));
  EXPECT_EQ(pinned[0], 7);
  OK(cudaStreamSynchronize(a));
  EXPECT_EQ(pinned[0], 0);
}

TEST_P(Cudart, CopiesOutsideABufferAreReported) {
  std::vector<int> host(2 * kCount);
  const auto bad = [&](void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
    EXPECT_EQ(cudaMemcpyAsync(to, from, bytes, kind, a), cudaErrorInvalidValue);
    EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidValue);
    EXPECT_EQ(reported(), "copy");
  };
  bad(device, host.data(), kBytes + 1, cudaMemcpyHostToDevice);
  bad(host.data(), static_cast<char*>(device) + 4, kBytes, cudaMemcpyDeviceToHost);
  bad(host.data(), device, kBytes, cudaMemcpyHostToDevice);
  bad(device, host.data(), kBytes, cudaMemcpyDeviceToHost);
  bad(device, pinned, kBytes + 4, cudaMemcpyHostToDevice);
  bad(device, pinned + kCount - 1, 8, cudaMemcpyHostToDevice);
  EXPECT_EQ(cudaMemsetAsync(device, 0, kBytes + 1, a), cudaErrorInvalidValue);
  EXPECT_EQ(reported(), "copy");
  EXPECT_EQ(cudaMemcpyPeerAsync(device, 1, device, 0, kBytes, a), cudaErrorInvalidValue);
  EXPECT_EQ(reported(), "copy");
  EXPECT_EQ(read(device, a).size(), kCount);
  EXPECT_EQ(reported(), "");
}

TEST_P(Cudart, MemoryIsAllocatedWhenItsStreamGetsThere) {
  void* p = nullptr;
  OK(cudaMallocAsync(&p, kBytes, a));
  OK(cudaMemsetAsync(p, 1, kBytes, b));  // no event after the allocation
  const cudaError_t status = cudaStreamSynchronize(b);
  if (GetParam() == Schedule::forward) {
    EXPECT_EQ(status, cudaErrorLaunchFailure);
    EXPECT_EQ(cudaStreamSynchronize(a), cudaErrorLaunchFailure) << "the device works again by itself";
    EXPECT_NE(reports().at(0).text.find("allocated in another stream"), std::string::npos) << reports()[0].text;
    EXPECT_EQ(reported(), "not-allocated");
    EXPECT_EQ(cudaStreamSynchronize(a), cudaSuccess);
  }
  clear_reports();
  OK(cudaMemsetAsync(p, 1, kBytes, a));
  OK(cudaFreeAsync(p, a));
  OK(cudaStreamSynchronize(a));
  EXPECT_EQ(reported(), "");
}

TEST_P(Cudart, MemoryFreedTooEarlyShows) {
  void* p = nullptr;
  OK(cudaMallocAsync(&p, kBytes, a));
  OK(cudaStreamSynchronize(a));
  OK(cudaMemsetAsync(p, 1, kBytes, b));
  OK(cudaFreeAsync(p, a));  // does not wait for b
  cudaStreamSynchronize(a);
  cudaStreamSynchronize(b);
  const std::string kinds = reported();
  if (GetParam() == Schedule::forward) {
    EXPECT_EQ(kinds, "not-allocated");
  }
  EXPECT_EQ(cudaMemsetAsync(p, 1, kBytes, a), cudaErrorInvalidValue);
  EXPECT_EQ(reported(), "copy");
}

TEST_P(Cudart, FreesAreChecked) {
  void* p = nullptr;
  OK(cudaMallocAsync(&p, kBytes, a));
  OK(cudaFreeAsync(p, a));
  EXPECT_EQ(cudaFreeAsync(p, a), cudaErrorInvalidValue);
  EXPECT_EQ(reported(), "double-free");
  OK(cudaStreamSynchronize(a));
  EXPECT_EQ(cudaFree(p), cudaErrorInvalidValue);
  EXPECT_EQ(reported(), "invalid-free");
  EXPECT_EQ(cudaFreeAsync(static_cast<char*>(device) + 4, a), cudaErrorInvalidValue);
  EXPECT_EQ(reported(), "invalid-free");
  EXPECT_EQ(cudaFreeHost(&p), cudaErrorInvalidValue);
  const size_t before = buffers_in_use();
  OK(cudaMallocAsync(&p, kBytes, a));
  EXPECT_EQ(buffers_in_use(), before + 1);
  OK(cudaFree(p));
  EXPECT_EQ(buffers_in_use(), before);
}

TEST_P(Cudart, MemoryEnds) {
  void *p = nullptr, *q = nullptr;
  EXPECT_EQ(cudaMalloc(&p, 64 * kMiB), cudaErrorMemoryAllocation);
  OK(cudaMallocAsync(&p, 40 * kMiB, a));
  EXPECT_EQ(cudaMallocAsync(&q, 40 * kMiB, a), cudaErrorMemoryAllocation);
  size_t free = 0, total = 0;
  OK(cudaMemGetInfo(&free, &total));
  EXPECT_EQ(total, 64 * kMiB);
  EXPECT_LE(free, 24 * kMiB);
  OK(cudaFreeAsync(p, a));
  OK(cudaMallocAsync(&q, 40 * kMiB, a));  // reuses p's memory
  OK(cudaFreeAsync(q, a));
  EXPECT_EQ(cudaMallocAsync(&q, 0, a), cudaErrorInvalidValue);
}

TEST_P(Cudart, TheDefaultStreamIsOrderedWithBlockingStreams) {
  cudaStream_t blocking = nullptr;
  OK(cudaStreamCreateWithFlags(&blocking, cudaStreamDefault));
  for (int round = 1; round <= 10; ++round) {
    OK(cudaMemsetAsync(device, round, kBytes, blocking));
    OK(cudaMemcpyAsync(pinned, device, kBytes, cudaMemcpyDeviceToHost, nullptr));
    OK(cudaMemsetAsync(device, 0, kBytes, blocking));
    OK(cudaStreamSynchronize(nullptr));
    EXPECT_EQ(pinned[3], round * 0x01010101);
    OK(cudaStreamSynchronize(blocking));
  }
  OK(cudaStreamDestroy(blocking));
  EXPECT_EQ(cudaStreamSynchronize(blocking), cudaErrorInvalidResourceHandle);
}

TEST_P(Cudart, EventsBelongToDevicesAndTime) {
  cudaEvent_t begin = nullptr, end = nullptr;
  float ms = -1;
  OK(cudaEventCreateWithFlags(&begin, cudaEventDefault));
  OK(cudaEventCreateWithFlags(&end, cudaEventDefault));
  OK(cudaEventQuery(begin));  // never recorded
  EXPECT_EQ(cudaEventElapsedTime(&ms, begin, end), cudaErrorInvalidResourceHandle);
  OK(cudaEventRecord(begin, a));
  OK(cudaMemsetAsync(device, 0, kBytes, a));
  OK(cudaEventRecord(end, a));
  EXPECT_EQ(cudaEventElapsedTime(&ms, begin, end), cudaErrorNotReady);
  EXPECT_EQ(cudaStreamQuery(a), cudaErrorNotReady);
  while (cudaEventQuery(end) == cudaErrorNotReady) {
  }
  OK(cudaEventElapsedTime(&ms, begin, end));
  EXPECT_GT(ms, 0);
  EXPECT_EQ(cudaGetLastError(), cudaErrorNotReady);
  OK(cudaSetDevice(1));
  cudaEvent_t other = nullptr;
  OK(cudaEventCreateWithFlags(&other, cudaEventDefault));
  EXPECT_EQ(cudaEventRecord(other, a), cudaErrorInvalidResourceHandle);
  OK(cudaSetDevice(0));
  for (cudaEvent_t event : {begin, end, other}) OK(cudaEventDestroy(event));
}

TEST_P(Cudart, ACaptureForbidsWhatCudaForbids) {
  cudaGraph_t graph = nullptr;
  const auto lost = [&](const std::function<cudaError_t()>& call,
                        cudaError_t expected = cudaErrorStreamCaptureUnsupported) {
    EXPECT_EQ(cudaStreamBeginCapture(a, cudaStreamCaptureModeThreadLocal), cudaSuccess);
    EXPECT_EQ(call(), expected);
    EXPECT_EQ(cudaStreamEndCapture(a, &graph), cudaErrorStreamCaptureInvalidated);
    EXPECT_EQ(graph, nullptr);
  };
  void* p = nullptr;
  cudaEvent_t event = nullptr;
  OK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  OK(cudaEventRecord(event, b));
  lost([&] { return cudaStreamSynchronize(a); });
  lost([&] { return cudaStreamQuery(a); });
  lost([&] { return cudaDeviceSynchronize(); });
  lost([&] { return cudaMalloc(&p, kBytes); });
  lost([&] { return cudaFree(device); });
  lost([&] { return cudaHostAlloc(&p, kBytes, 0); });
  lost([&] { return cudaMemcpy(pinned, device, kBytes, cudaMemcpyDeviceToHost); });
  lost([&] { return cudaStreamWaitEvent(a, event, 0); }, cudaErrorStreamCaptureIsolation);
  OK(cudaEventDestroy(event));
  EXPECT_EQ(cudaStreamEndCapture(a, &graph), cudaErrorIllegalState);
  EXPECT_EQ(cudaStreamBeginCapture(nullptr, cudaStreamCaptureModeThreadLocal), cudaErrorStreamCaptureUnsupported);

  OK(cudaStreamBeginCapture(a, cudaStreamCaptureModeThreadLocal));
  std::thread([&] {  // other threads are not affected, but must not use the stream
    EXPECT_EQ(cudaMalloc(&p, kBytes), cudaSuccess);
    EXPECT_EQ(cudaFree(p), cudaSuccess);
    EXPECT_EQ(cudaStreamEndCapture(a, &graph), cudaErrorStreamCaptureWrongThread);
    EXPECT_EQ(cudaMemsetAsync(device, 0, kBytes, a), cudaSuccess);
  })
      .join();
  EXPECT_EQ(reported(), "foreign-capture");
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  OK(cudaThreadExchangeStreamCaptureMode(&mode));
  OK(cudaMalloc(&p, kBytes));
  OK(cudaFree(p));
  OK(cudaThreadExchangeStreamCaptureMode(&mode));
  OK(cudaStreamEndCapture(a, &graph));
  OK(cudaGraphDestroy(graph));
  cudaGetLastError();
}

TEST_P(Cudart, AForkedCaptureMustJoin) {
  cudaEvent_t fork = nullptr, join = nullptr;
  for (cudaEvent_t* event : {&fork, &join}) OK(cudaEventCreateWithFlags(event, cudaEventDisableTiming));
  for (const bool joins : {true, false}) {
    cudaGraph_t graph = nullptr;
    OK(cudaStreamBeginCapture(a, cudaStreamCaptureModeThreadLocal));
    OK(cudaMemsetAsync(device, 1, kBytes, a));
    OK(cudaEventRecord(fork, a));
    OK(cudaStreamWaitEvent(b, fork, 0));
    OK(cudaMemcpyAsync(pinned, device, kBytes, cudaMemcpyDeviceToHost, b));
    EXPECT_EQ(cudaEventSynchronize(fork), cudaErrorCapturedEvent);
    OK(cudaEventRecord(join, b));
    if (joins) {
      OK(cudaStreamWaitEvent(a, join, 0));
    }
    OK(cudaMemsetAsync(device, 0, kBytes, a));
    EXPECT_EQ(cudaStreamEndCapture(a, &graph), joins ? cudaSuccess : cudaErrorStreamCaptureUnjoined);
    EXPECT_EQ(pinned[0], 7);
    if (!joins) continue;
    cudaGraphExec_t work = nullptr;
    OK(cudaGraphInstantiate(&work, graph, 0));
    OK(cudaGraphDestroy(graph));
    OK(cudaGraphLaunch(work, a));
    OK(cudaGraphExecDestroy(work));  // launched work still runs
    OK(cudaStreamSynchronize(a));
    EXPECT_EQ(pinned[0], 0x01010101);
    EXPECT_EQ(read(device, a), filled(0));
    pinned[0] = 7;
  }
  for (cudaEvent_t event : {fork, join}) OK(cudaEventDestroy(event));
  cudaGetLastError();
}

TEST_P(Cudart, AGraphAllocates) {
  void* p = nullptr;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t work = nullptr;
  OK(cudaStreamBeginCapture(a, cudaStreamCaptureModeThreadLocal));
  OK(cudaMallocAsync(&p, kBytes, a));
  OK(cudaMemsetAsync(p, 2, kBytes, a));
  OK(cudaMemcpyAsync(device, p, kBytes, cudaMemcpyDeviceToDevice, a));
  OK(cudaFreeAsync(p, a));
  EXPECT_EQ(cudaFreeAsync(device, a), cudaErrorInvalidValue) << "memory from outside";
  OK(cudaStreamEndCapture(a, &graph));
  OK(cudaGraphInstantiate(&work, graph, cudaGraphInstantiateFlagAutoFreeOnLaunch));
  for (int i = 0; i < 3; ++i) {
    OK(cudaMemsetAsync(device, 0, kBytes, a));
    OK(cudaGraphLaunch(work, a));
    EXPECT_EQ(read(device, a), filled(0x02020202));
  }
  OK(cudaGraphExecDestroy(work));
  OK(cudaGraphDestroy(graph));
  EXPECT_EQ(reported(), "");
}

TEST(EmulatedGpu, IsReadFromText) {
  const Gpu gpu = parsed_gpu("devices=3 memory=256M sm=75");
  EXPECT_TRUE(gpu.driver);
  EXPECT_EQ(gpu.devices, 3);
  EXPECT_EQ(gpu.memory_bytes, 256 * kMiB);
  EXPECT_EQ(gpu.major * 10 + gpu.minor, 75);
  EXPECT_EQ(parsed_gpu("devices=0").devices, 0);
  EXPECT_EQ(parsed_gpu("sm=100").major, 10);
  EXPECT_EQ(parsed_gpu("memory=4096").memory_bytes, 4096u);
  const std::string unknown = message_of<UsageError>([] { parsed_gpu("gpus=2"); });
  EXPECT_NE(unknown.find("'gpus=2' is not known; expected some of devices=N"), std::string::npos) << unknown;
  EXPECT_NE(message_of<UsageError>([] { parsed_gpu("memory=12Q"); }).find("'12Q' is no number"), std::string::npos);
  EXPECT_THROW(parsed_gpu("devices"), UsageError);
}

TEST(EmulatedGpu, MayBeMissing) {
  int count = 5;
  set_gpu({.driver = false});
  EXPECT_EQ(cudaGetDeviceCount(&count), cudaErrorInsufficientDriver);
  EXPECT_EQ(count, 0);
  set_gpu({.devices = 0});
  EXPECT_EQ(cudaGetDeviceCount(&count), cudaErrorNoDevice);
  set_gpu({.devices = 2, .major = 8});
  EXPECT_EQ(cudaGetDeviceCount(&count), cudaSuccess);
  EXPECT_EQ(count, 2);
  EXPECT_EQ(cudaSetDevice(2), cudaErrorInvalidDevice);
  EXPECT_STREQ(cudaGetErrorName(cudaGetLastError()), "cudaErrorInvalidDevice");
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  alignas(Kernel) static const char nothing[sizeof(Kernel)] = {};
  const Kernel& kernel = reinterpret_cast<const Kernel&>(nothing);  // never runs, and is in no list
  EXPECT_EQ(enqueue_kernel(kernel, 1, 32, 0, nullptr, [] {}), cudaErrorNoKernelImageForDevice);
  set_gpu({.devices = 2});
  EXPECT_EQ(enqueue_kernel(kernel, 1, 1025, 0, nullptr, [] {}), cudaErrorInvalidConfiguration);
  EXPECT_EQ(enqueue_kernel(kernel, dim3(1, 65536), 1, 0, nullptr, [] {}), cudaErrorInvalidConfiguration);
  EXPECT_EQ(enqueue_kernel(kernel, 1, 1, 228 * 1024, nullptr, [] {}), cudaErrorInvalidValue);
  cudaGetLastError();
}

}  // namespace
}  // namespace ringtape::emulation
