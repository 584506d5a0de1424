#pragma once
#include "core/device.h"
#include "core/dtype.h"

namespace ringtape::bench {

// What this machine can do, measured now with threads() threads: the best of several short runs.
double peak_bandwidth();  // bytes/s of a copy far larger than the caches, read plus written
double peak_flops();      // f32 operations/s of independent fused multiply-adds in registers

// The same of a device that works on its own, as a GPU does.
double copy_bandwidth(Device device);              // bytes/s of a copy of 512 MiB on the device itself, read plus written
double matmul_flops(Device device, DType dtype);   // operations/s of the best of the square products 512 to 8192

}  // namespace ringtape::bench
