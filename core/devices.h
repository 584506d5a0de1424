#pragma once
#include <cstdint>

#include "core/device.h"

namespace ringtape {

// Bytes that tensors hold on a device: now and at most since the last reset. reserved: held from the system, used or
// cached.
struct MemoryStats {
  int64_t current = 0;
  int64_t peak = 0;
  int64_t reserved = 0;
  int64_t allocations = 0;         // requests served so far
  int64_t system_allocations = 0;  // those that asked the system: constant once a training loop is warm
};

bool available(Device device);
// These throw DeviceError if there is no such device.
MemoryStats memory_stats(Device device);
void reset_peak_memory(Device device);
void synchronize(Device device);  // waits for all its work

}  // namespace ringtape
