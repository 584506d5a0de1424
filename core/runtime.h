#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "core/device.h"

namespace ringtape {

// Bytes that tensors hold on a device now, at most since the last reset, and kept from the system (in use or cached).
struct MemoryStats {
  int64_t current = 0;
  int64_t peak = 0;
  int64_t reserved = 0;
  int64_t allocations = 0;         // requests served so far
  int64_t system_allocations = 0;  // those that had to ask the system: flat once a training loop is warm
};

// A copy to the host that has been started.
struct PendingRead {
  virtual ~PendingRead() = default;
  virtual void finish(void* to) = 0;  // waits for it; writes all of it to `to`
};

// Bytes on the host that can go to a device while both work on. Filled by any thread.
struct HostBuffer {
  virtual ~HostBuffer() = default;
  virtual void* data() = 0;
};

// Two places on a device where such bytes arrive in turn, so that some travel while others are worked on.
struct Inbox {
  virtual ~Inbox() = default;
  // Starts the copy; the buffer may be let go. Where the bytes are for the work asked for from now until the next call.
  virtual void* receive(HostBuffer& from, size_t bytes) = 0;
};

// What a device type must be able to do; one table each, and a null table where it is not built in.
struct Runtime {
  int (*device_count)();
  std::string (*unavailable_reason)();                   // why there is none, and what to do; empty if there is one
  std::string (*describe)(int index);                    // "NVIDIA H200, sm_90, 141 GB"; empty where the device has no name
  void* (*allocate)(size_t bytes, int index);            // 64-byte aligned; throws OutOfMemory
  void (*deallocate)(void* data, size_t bytes, int index) noexcept;
  void (*copy)(void* to, Device to_device, const void* from, Device from_device, size_t bytes);
  std::shared_ptr<PendingRead> (*read)(const void* from, size_t bytes, int index);  // null where copy() never waits: the CPU
  std::shared_ptr<HostBuffer> (*host_buffer)(size_t bytes, int index);              // null on the CPU
  std::shared_ptr<Inbox> (*inbox)(size_t bytes, int index);                         // of places so large; null on the CPU
  void (*zero)(void* data, size_t bytes, int index);
  void (*synchronize)(int index);                        // waits for all that was asked of the device
  MemoryStats (*stats)(int index);
  int64_t (*free_bytes)(int index);                      // that tensors could still get
  void (*reset_peak)(int index);
  void (*release_cached)(int index);                     // gives unused blocks back to the system
};

const Runtime& runtime(Device device);                   // throws DeviceError if there is no such device
bool available(Device device);
inline MemoryStats memory_stats(Device device) { return runtime(device).stats(device.index); }
inline void synchronize(Device device) { runtime(device).synchronize(device.index); }
inline void reset_peak_memory(Device device) { runtime(device).reset_peak(device.index); }

namespace cpu { extern const Runtime runtime; }
namespace cuda { extern const Runtime runtime [[gnu::weak]]; }  // a build without CUDA has none

}  // namespace ringtape
