#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "core/devices.h"

namespace ringtape {

// A started copy to the host.
struct PendingRead {
  virtual ~PendingRead() = default;
  virtual void finish(void* to) = 0;  // waits for it; writes all of it to `to`
};

// Bytes on the host that can be copied to a device while both keep working. Any thread may fill it.
struct HostBuffer {
  virtual ~HostBuffer() = default;
  virtual void* data() = 0;
};

// Two buffers on a device that receive such bytes in turn, so that copies overlap work.
struct Inbox {
  virtual ~Inbox() = default;
  // Starts the copy; `from` may be released. Returns where work that is launched before the next call finds the bytes.
  virtual void* receive(HostBuffer& from, size_t bytes) = 0;
};

// Work of a device that was recorded once and is put on it with one call: core/cuda/graph.h.
struct RecordedWork {
  virtual ~RecordedWork() = default;
  virtual void launch() = 0;
};

// The functions of a device type. One table per type; null where the type is not built in.
struct Runtime {
  int (*device_count)();
  std::string (*unavailable_reason)();         // why there is no device, and what to do; else empty
  std::string (*describe)(int index);          // "NVIDIA H200, sm_90, 141 GB"; empty if the device has no name
  void* (*allocate)(size_t bytes, int index);  // 64-byte aligned; throws OutOfMemory
  void (*deallocate)(void* data, size_t bytes, int index) noexcept;
  void (*copy)(void* to, Device to_device, const void* from, Device from_device, size_t bytes);
  std::shared_ptr<PendingRead> (*read)(const void* from, size_t bytes,
                                       int index);                      // null on the CPU, where copy() never waits
  std::shared_ptr<HostBuffer> (*host_buffer)(size_t bytes, int index);  // null on the CPU
  std::shared_ptr<Inbox> (*inbox)(size_t bytes, int index);             // two buffers of `bytes`; null on the CPU
  std::shared_ptr<RecordedWork> (*record)(const std::function<void()>& body, int index);  // null on the CPU
  void (*zero)(void* data, size_t bytes, int index);
  void (*synchronize)(int index);  // waits for all work of the device
  MemoryStats (*stats)(int index);
  int64_t (*free_bytes)(int index);  // that tensors can still allocate
  void (*reset_peak)(int index);
  void (*release_cached)(int index);  // gives unused blocks back to the system
};

const Runtime& runtime(Device device);  // throws DeviceError if there is no such device

namespace cpu {
extern const Runtime runtime;
// Counts memory that tensors on cpu:0 have from elsewhere, such as shared memory; negative: that has been returned.
void count_memory(int64_t bytes);
}  // namespace cpu
namespace cuda {
extern const Runtime runtime [[gnu::weak]];
}  // namespace cuda

}  // namespace ringtape
