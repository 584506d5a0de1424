#pragma once
#include "core/device.h"
#include "core/dtype.h"

namespace ringtape::bench {

// The peak of this machine, measured by each call with threads() threads: the best of several short runs.
double peak_bandwidth();  // bytes/s of a copy far larger than the caches, reads plus writes
double peak_flops();      // f32 operations/s of independent fused multiply-adds in registers

// The same for a device that works asynchronously, such as a GPU.
double copy_bandwidth(Device device);             // bytes/s of a copy of 512 MiB on the device, reads plus writes
double matmul_flops(Device device, DType dtype);  // operations/s of the best square product of sizes 512 to 8192

}  // namespace ringtape::bench
