#include "core/cuda/device.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <exception>
#include <mutex>

#include "core/cuda/check.h"
#include "core/device.h"

#ifndef RINGTAPE_CUDA_ARCHITECTURES
#define RINGTAPE_CUDA_ARCHITECTURES ""  // unknown: no GPU is rejected
#endif

namespace ringtape::cuda {
namespace {

struct DeviceState {
  std::atomic<const Properties*> properties{nullptr};
  std::atomic<cudaStream_t> compute{nullptr}, copy{nullptr};
};

// Never destroyed: tensors with static lifetime may outlive any order of destruction.
DeviceState& state(int index) {
  static auto* states = new std::array<DeviceState, kMaxDevices>;
  return (*states)[size_t(index)];
}
std::mutex& first_use() {
  static auto* mutex = new std::mutex;
  return *mutex;
}

Properties read_properties(int index) {
  cudaDeviceProp p{};
  RT_GPU_CHECK(cudaGetDeviceProperties(&p, index));
  return {.name = p.name,
          .major = p.major,
          .minor = p.minor,
          .multiprocessors = p.multiProcessorCount,
          .l2_bytes = p.l2CacheSize,
          .shared_bytes_per_block = int(p.sharedMemPerBlockOptin),
          .memory_bytes = p.totalGlobalMem};
}

// "sm_80, sm_90" from "80;90-virtual"
std::string listed(std::string_view architectures) {
  std::string out = "sm_";
  for (const char c : architectures.substr(0, architectures.find_last_not_of("; ") + 1)) {
    if (c == ';') out += ", sm_";
    else out += c;
  }
  return out;
}

cudaStream_t make_once(std::atomic<cudaStream_t>& slot) {
  const std::lock_guard lock(first_use());
  if (cudaStream_t made = slot.load()) return made;
  cudaStream_t stream = nullptr;
  RT_GPU_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  slot.store(stream);
  return stream;
}

}  // namespace

// Asked until there is one: then the number does not change. Each allocation needs it, and the question may report the
// error of an earlier kernel.
int device_count() {
  static std::atomic<int> known{0};
  if (const int count = known.load(std::memory_order_relaxed)) return count;
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) {
    cudaGetLastError();
    count = 0;
  }
  known = std::min(count, kMaxDevices);
  return known;
}

std::string unavailable_reason() {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status == cudaSuccess && count > 0) return "";
  cudaGetLastError();
  if (status == cudaErrorInsufficientDriver) {
    int driver = 0;
    if (cudaDriverGetVersion(&driver) != cudaSuccess) driver = 0;
    const std::string known =
        concat("the CUDA driver supports CUDA ", driver / 1000, '.', driver % 1000 / 10, " and is older than");
    const std::string found = driver ? known : "the CUDA driver is missing or older than";
    const int needed = CUDART_VERSION / 1000;
    return concat(found, " CUDA ", needed, '.', CUDART_VERSION % 1000 / 10, " needs (", text_of(status),
                  "); install NVIDIA driver ", needed <= 12 ? 525 : 580, " or newer, or use --device cpu");
  }
  if (status == cudaSuccess || status == cudaErrorNoDevice)
    return concat("the CUDA driver finds no GPU (", text_of(cudaErrorNoDevice),
                  "); see what nvidia-smi and CUDA_VISIBLE_DEVICES say, or use --device cpu");
  return concat("CUDA does not start (", text_of(status), "); see what nvidia-smi says, or use --device cpu");
}

const Properties& properties(int index) {
  DeviceState& device = state(index);
  if (const Properties* known = device.properties.load(std::memory_order_acquire)) return *known;
  const std::lock_guard lock(first_use());
  if (const Properties* known = device.properties.load()) return *known;
  auto read = read_properties(index);
  RT_CHECK_AS(DeviceError, runs_on(RINGTAPE_CUDA_ARCHITECTURES, read.major, read.minor), "cuda:", index, " is ",
              read.name, " (sm_", read.major, read.minor, "), but this build has kernels for ",
              listed(RINGTAPE_CUDA_ARCHITECTURES), " only; reconfigure with -DCMAKE_CUDA_ARCHITECTURES=", read.major,
              read.minor);
  const auto* made = new Properties(std::move(read));
  device.properties.store(made, std::memory_order_release);
  return *made;
}

void use(int index) {
  static thread_local int current = -1;
  if (current == index) return;
  properties(index);
  RT_GPU_CHECK(cudaSetDevice(index));
  current = index;
}

void use_in_destructor(int index) noexcept {
  try {
    use(index);
  } catch (const std::exception&) {  // what follows fails, too, and is ignored
  }
}

// Set by OnStream; index -1: none.
static thread_local int elsewhere_index = -1;
static thread_local cudaStream_t elsewhere = nullptr;

OnStream::OnStream(int index, cudaStream_t stream) : before_index_(elsewhere_index), before_(elsewhere) {
  elsewhere_index = index;
  elsewhere = stream;
}
OnStream::~OnStream() {
  elsewhere_index = before_index_;
  elsewhere = before_;
}

cudaStream_t compute_stream(int index) {
  if (index == elsewhere_index) return elsewhere;
  if (cudaStream_t made = state(index).compute.load(std::memory_order_acquire)) return made;
  use(index);
  return make_once(state(index).compute);
}
cudaStream_t copy_stream(int index) {
  if (cudaStream_t made = state(index).copy.load(std::memory_order_acquire)) return made;
  use(index);
  return make_once(state(index).copy);
}

void synchronize(int index) {
  use(index);
  RT_GPU_CHECK(cudaDeviceSynchronize());
}

}  // namespace ringtape::cuda
