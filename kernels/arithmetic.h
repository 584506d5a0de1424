#pragma once
#include <cstdint>
#include <optional>
#include <type_traits>

#include "kernels/bf16_unit.h"

namespace ringtape {

// with_wgmma: always, and by Hopper's instructions the convolutions for which there is such a kernel.
enum class Fusing : uint8_t { where_faster, never, always, with_wgmma };

// How kernels compute where they have a choice: of the whole process.
struct Arithmetic {
  // Whether matrix products, convolutions and the scores of NT-Xent of f32 on GPUs may round their operands to TF32,
  // NVIDIA's format with 8 bits of exponent and 11 of significand, whose products tensor cores compute; sums stay f32.
  // As PyTorch's set_float32_matmul_precision("high"). CPU kernels compute in f32 all the same, and so do our own CUDA
  // kernels where a pack of 16 bytes does not lie together.
  bool tf32 = false;

  // No Winograd's algorithm (kernels/conv2d.h). At first as RINGTAPE_EXACT_CONV says.
  bool exact_convolutions = false;

  // The first acceptable plan that cuDNN proposes, and no residual block fused, so that no result depends on a
  // measurement, nor on the file of earlier ones (RINGTAPE_CONV_PLANS).
  bool deterministic_convolutions = false;

  // On GPUs, products and convolutions by our own kernels, as if there were neither cuBLASLt nor cuDNN.
  bool own_kernels = false;

  // Whether residual blocks are fused where they can be (kernels/conv_norm.h): where that was measured to be faster,
  // unless RINGTAPE_FUSED_CONV says otherwise.
  Fusing fusing = Fusing::where_faster;

  // What multiplies matrices of bf16 on the CPU, emulated where the machine or cpu_isa() has no such unit; none: the
  // fastest (bf16_choice()).
  std::optional<Bf16Choice> bf16;
};

Arithmetic arithmetic();
void set_arithmetic(const Arithmetic& arithmetic);

// Changes one setting while it lives.
class ArithmeticScope {
 public:
  template <class T> ArithmeticScope(T Arithmetic::*setting, std::type_identity_t<T> value) {
    Arithmetic now = before_;
    now.*setting = value;
    set_arithmetic(now);
  }
  ~ArithmeticScope() { set_arithmetic(before_); }
  ArithmeticScope(const ArithmeticScope&) = delete;
  ArithmeticScope& operator=(const ArithmeticScope&) = delete;

 private:
  const Arithmetic before_ = arithmetic();
};

}  // namespace ringtape
