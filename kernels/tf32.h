#pragma once

namespace ringtape {

// Whether matrix products, convolutions and the scores of NT-Xent of f32 on GPUs may round their operands to TF32,
// NVIDIA's format with 8 bits of exponent and 11 of significand, whose products tensor cores compute; sums stay f32.
// As PyTorch's set_float32_matmul_precision("high"). For the whole process; off at first. CPU kernels compute in f32
// all the same, and so do our own CUDA kernels where a pack of 16 bytes does not lie together.
void set_tf32(bool allowed);
bool tf32();

}  // namespace ringtape
