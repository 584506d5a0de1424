#pragma once

namespace ringtape::bench {

// What this machine can do, measured now with threads() threads: the best of several short runs.
double peak_bandwidth();  // bytes/s of a copy far larger than the caches, read plus written
double peak_flops();      // f32 operations/s of independent fused multiply-adds in registers

}  // namespace ringtape::bench
