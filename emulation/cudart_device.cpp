// The stand-in for libcudart: the machine, its devices, and errors.
#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <utility>

#include "core/check.h"
#include "core/device.h"
#include "emulation/cudart.h"
#include "emulation/report.h"
#include "emulation/scheduler.h"

namespace ringtape::emulation {
namespace {

constexpr int kCudaVersion = CUDART_VERSION;
constexpr int kMultiprocessors = 4;  // keeps grids that depend on it small
constexpr int kL2Bytes = 1 << 20;
constexpr int kBuiltFor = 90;  // kernels count as compiled for sm_90, with PTX

thread_local int this_device = 0;
thread_local cudaError_t last_error = cudaSuccess;

std::mutex& the_lock() {
  static std::mutex& mutex = *new std::mutex;  // outlives the objects that free memory at exit
  return mutex;
}

std::map<std::string, uint64_t>& counted() {
  static auto& counts = *new std::map<std::string, uint64_t>;
  return counts;
}

constexpr const char* kSyntax =
    "expected some of devices=N memory=BYTES[K|M|G] sm=NN defect=products, as in \"devices=2 memory=256M sm=90\"";

size_t number_of(std::string_view text, std::string_view whole) {
  size_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const std::string_view unit(end, size_t(text.data() + text.size() - end));
  const size_t place = unit.empty() ? 0 : std::string_view("KMG").find(unit[0]);
  RT_CHECK_AS(UsageError, error == std::errc{} && unit.size() <= 1 && place != std::string_view::npos,
              "RINGTAPE_EMULATED_GPU=", whole, ": '", text, "' is no number; ", kSyntax);
  return unit.empty() ? value : value << (10 * (place + 1));
}

Gpu& machine() {
  static Gpu gpu = [] {
    const char* text = std::getenv("RINGTAPE_EMULATED_GPU");
    Gpu none;
    none.driver = false;
    return text && *text ? parsed_gpu(text) : none;
  }();
  return gpu;
}

cudaError_t keep(cudaError_t status) {
  if (status != cudaSuccess) last_error = status;  // that it is not ready, too
  return status;
}

bool exists(int device) { return device >= 0 && device < machine().devices; }

bool valid_block(dim3 n) {
  const uint64_t size = uint64_t{n.x} * n.y * n.z;
  return size > 0 && size <= uint64_t(kMaxThreads) && n.x <= 1024 && n.y <= 1024 && n.z <= 64;
}
bool valid_grid(dim3 n) { return n.x > 0 && n.y > 0 && n.z > 0 && n.x <= 0x7fffffff && n.y <= 65535 && n.z <= 65535; }

int attribute(cudaDeviceAttr which) {
  switch (which) {
    case cudaDevAttrMaxThreadsPerBlock: return kMaxThreads;
    case cudaDevAttrMaxSharedMemoryPerBlock: return int(kMaxStaticSharedBytes);
    case cudaDevAttrWarpSize: return 32;
    case cudaDevAttrMultiProcessorCount: return kMultiprocessors;
    case cudaDevAttrL2CacheSize: return kL2Bytes;
    case cudaDevAttrMaxThreadsPerMultiProcessor: return 2048;
    case cudaDevAttrComputeCapabilityMajor: return machine().major;
    case cudaDevAttrComputeCapabilityMinor: return machine().minor;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor: return int(kMaxSharedBytes) + 1024;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: return int(kMaxSharedBytes);
    case cudaDevAttrMaxBlocksPerMultiprocessor: return 32;
    case cudaDevAttrMemoryPoolsSupported: return 1;
  }
  return -1;
}

}  // namespace

Gpu parsed_gpu(std::string_view whole) {
  Gpu gpu;
  std::string_view text = whole;
  while (!text.empty()) {
    const size_t end = std::min(text.find_first_of(" ,"), text.size());
    const std::string_view part = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (part.empty()) continue;
    const size_t equals = std::min(part.find('='), part.size() - 1);
    const std::string_view key = part.substr(0, equals), value = part.substr(equals + 1);
    if (key == "devices") gpu.devices = int(std::min(number_of(value, whole), size_t(kMaxDevices)));
    else if (key == "memory") gpu.memory_bytes = number_of(value, whole);
    else if (key == "sm") gpu.major = int(number_of(value, whole) / 10), gpu.minor = int(number_of(value, whole) % 10);
    else if (part == "defect=products") gpu.short_products = true;
    else detail::fail<UsageError>({"RINGTAPE_EMULATED_GPU=", whole, ": '", part, "' is not known; ", kSyntax});
  }
  return gpu;
}

void set_gpu(const Gpu& gpu) {
  const std::lock_guard lock(the_lock());
  machine() = gpu;
}
const Gpu& gpu() { return machine(); }

int current_device() { return this_device; }

std::map<std::string, uint64_t> calls() {
  const std::lock_guard lock(the_lock());
  return counted();
}

cudaError_t api_call(const std::function<cudaError_t()>& body, const char* name) {
  const std::lock_guard lock(the_lock());
  ++counted()[name];
  if (!machine().driver) return keep(cudaErrorInsufficientDriver);
  if (machine().devices == 0) return keep(cudaErrorNoDevice);
  return keep(body());
}

void let_others_call() {
  the_lock().unlock();
  std::this_thread::sleep_for(std::chrono::microseconds(50));
  the_lock().lock();
}

// Rejects configurations that a GPU would reject, then puts the kernel on the stream.
cudaError_t enqueue_kernel(const Kernel& kernel, dim3 blocks, dim3 threads, size_t shared_bytes, cudaStream_t handle,
                           std::function<void()> body) {
  return api_call([&] {
    const auto stream = stream_of(handle);
    if (!stream || stream->device != this_device) return cudaErrorInvalidResourceHandle;
    if (10 * machine().major + machine().minor < kBuiltFor) return cudaErrorNoKernelImageForDevice;
    if (!valid_block(threads) || !valid_grid(blocks)) return cudaErrorInvalidConfiguration;
    if (shared_bytes > kMaxSharedBytes) return cudaErrorInvalidValue;
    put(*stream, [&kernel, blocks, threads, shared_bytes, body = std::move(body)] {
      run_grid(kernel, blocks, threads, shared_bytes, body);
    });
    return cudaSuccess;
  });
}

}  // namespace ringtape::emulation

using namespace ringtape::emulation;

extern "C" {

cudaError_t cudaGetLastError() { return std::exchange(last_error, cudaSuccess); }
cudaError_t cudaPeekAtLastError() { return last_error; }

cudaError_t cudaDriverGetVersion(int* version) {
  *version = gpu().driver ? kCudaVersion : 0;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = kCudaVersion;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceCount(int* count) {
  *count = 0;
  return api_call([&] {
    *count = machine().devices;
    return cudaSuccess;
  });
}
cudaError_t cudaGetDevice(int* device) {
  return api_call([&] {
    *device = this_device;
    return cudaSuccess;
  });
}
cudaError_t cudaSetDevice(int device) {
  return api_call([&] {
    if (!exists(device)) return cudaErrorInvalidDevice;
    this_device = device;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr which, int device) {
  return api_call([&] {
    if (!exists(device)) return cudaErrorInvalidDevice;
    *value = attribute(which);
    return *value < 0 ? cudaErrorInvalidValue : cudaSuccess;
  });
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int device) {
  return api_call([&] {
    if (!exists(device)) return cudaErrorInvalidDevice;
    *p = {};
    std::snprintf(p->name, sizeof p->name, "emulated GPU");
    p->uuid.bytes[15] = char(device);
    p->totalGlobalMem = machine().memory_bytes;
    p->sharedMemPerBlock = kMaxStaticSharedBytes;
    p->regsPerBlock = 65536;
    p->warpSize = 32;
    p->maxThreadsPerBlock = kMaxThreads;
    p->major = machine().major;
    p->minor = machine().minor;
    p->multiProcessorCount = kMultiprocessors;
    p->l2CacheSize = kL2Bytes;
    p->maxThreadsPerMultiProcessor = 2048;
    p->sharedMemPerMultiprocessor = kMaxSharedBytes + 1024;
    p->sharedMemPerBlockOptin = kMaxSharedBytes;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  return api_call([&] {
    *can = exists(device) && exists(peer) && device != peer;
    return exists(device) && exists(peer) ? cudaSuccess : cudaErrorInvalidDevice;
  });
}
cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned) {
  return api_call([&] { return exists(peer) && peer != this_device ? cudaSuccess : cudaErrorInvalidDevice; });
}
cudaError_t cudaLaunchKernel(const void* func, dim3 gridDim, dim3 blockDim, void** args, size_t sharedMem,
                             cudaStream_t stream) {
  const Kernel& kernel = *static_cast<const Kernel*>(func);
  return enqueue_kernel(kernel, gridDim, blockDim, sharedMem, stream, kernel.with(args));
}
cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute, int value) {
  return api_call([&] { return value >= 0 && size_t(value) <= kMaxSharedBytes ? cudaSuccess : cudaErrorInvalidValue; });
}

}  // extern "C"
