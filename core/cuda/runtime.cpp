// cuda::runtime: the functions of a GPU. Everything is put on the compute stream; only a copy to the host waits.
#include "core/runtime.h"

#include <cstring>

#include "core/cuda/check.h"
#include "core/cuda/device.h"
#include "core/cuda/event.h"
#include "core/cuda/graph.h"
#include "core/cuda/inbox.h"
#include "core/cuda/memory.h"
#include "core/cuda/pool.h"
#include "core/cuda/staging.h"

namespace ringtape::cuda {
namespace {

std::string describe(int index) {
  const Properties& p = properties(index);
  return concat(p.name, ", sm_", p.major, p.minor, ", ", (p.memory_bytes + 500'000'000) / 1'000'000'000, " GB");
}

bool pinned(const void* host) {
  cudaPointerAttributes attributes{};
  RT_GPU_CHECK(cudaPointerGetAttributes(&attributes, host));
  return attributes.type == cudaMemoryTypeHost;
}

// Copies to a device up to this size go through a staging buffer, so that the host does not wait for the stream.
constexpr size_t kMaxStaged = size_t{16} << 20;

void to_device(void* to, int index, const void* from, size_t bytes) {
  RT_CHECK_AS(DeviceError, !recording(index), "a copy from the host to cuda:", index,
              " cannot be part of a recorded graph: it would read the host's memory again at each launch");
  use(index);
  const cudaStream_t stream = compute_stream(index);
  if (bytes <= kMaxStaged) {
    Staging staging(index, bytes);
    std::memcpy(staging.data(), from, bytes);
    RT_GPU_CHECK(cudaMemcpyAsync(to, staging.data(), bytes, cudaMemcpyHostToDevice, stream));
    staging.used_until_now(stream);
  } else {
    // Pageable memory has been read when the call returns; page-locked memory is read when the stream gets there.
    RT_GPU_CHECK(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream));
    if (pinned(from)) RT_GPU_CHECK(cudaStreamSynchronize(stream));
  }
}

void to_host(void* to, const void* from, int index, size_t bytes) {
  RT_CHECK_AS(DeviceError, !recording(index), "a copy from cuda:", index,
              " to the host (as by item()) cannot be part of a recorded graph: it would wait for work that is not "
              "executed yet");
  use(index);
  RT_GPU_CHECK(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, compute_stream(index)));
  RT_GPU_CHECK(cudaStreamSynchronize(compute_stream(index)));
}

class Read : public PendingRead {
 public:
  Read(const void* from, size_t bytes, int index) : staging_(index, bytes), bytes_(bytes) {
    RT_CHECK_AS(DeviceError, !recording(index), "a readback from cuda:", index, " cannot be part of a recorded graph");
    use(index);
    RT_GPU_CHECK(cudaMemcpyAsync(staging_.data(), from, bytes, cudaMemcpyDeviceToHost, compute_stream(index)));
    staging_.used_until_now(compute_stream(index));
  }
  void finish(void* to) override {
    staging_.wait();
    std::memcpy(to, staging_.data(), bytes_);
  }

 private:
  Staging staging_;
  size_t bytes_;
};

std::shared_ptr<PendingRead> read(const void* from, size_t bytes, int index) {
  return std::make_shared<Read>(from, bytes, index);
}

// On the receiver's stream, after the sender's earlier work and before its later work.
void between_devices(void* to, int receiver, const void* from, int sender, size_t bytes) {
  Event written(sender);
  written.record(compute_stream(sender));
  written.wait_on(compute_stream(receiver));
  Event read(receiver);
  RT_GPU_CHECK(cudaMemcpyPeerAsync(to, receiver, from, sender, bytes, compute_stream(receiver)));
  read.record(compute_stream(receiver));
  read.wait_on(compute_stream(sender));
}

void copy(void* to, Device to_where, const void* from, Device from_where, size_t bytes) {
  if (bytes == 0) return;
  const bool writes_device = to_where.type == DeviceType::cuda, reads_device = from_where.type == DeviceType::cuda;
  if (!writes_device && !reads_device) {
    std::memcpy(to, from, bytes);
  } else if (!reads_device) {
    to_device(to, to_where.index, from, bytes);
  } else if (!writes_device) {
    to_host(to, from, from_where.index, bytes);
  } else if (to_where == from_where) {
    use(to_where.index);
    RT_GPU_CHECK(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, compute_stream(to_where.index)));
  } else {
    between_devices(to, to_where.index, from, from_where.index, bytes);
  }
}

void zero(void* data, size_t bytes, int index) {
  if (bytes == 0) return;
  use(index);
  RT_GPU_CHECK(cudaMemsetAsync(data, 0, bytes, compute_stream(index)));
}

}  // namespace

const Runtime runtime{
    .device_count = device_count,
    .unavailable_reason = unavailable_reason,
    .describe = describe,
    .allocate = allocate,
    .deallocate = deallocate,
    .copy = copy,
    .read = read,
    .host_buffer = host_buffer,
    .inbox = inbox,
    .record = record_work,
    .zero = zero,
    .synchronize = synchronize,
    .stats = stats,
    .free_bytes = free_bytes,
    .reset_peak = reset_peak,
    .release_cached = release_cached,
};

}  // namespace ringtape::cuda
