#pragma once
#include <cstdint>
#include <vector>

// The arithmetic of the tensor cores.
namespace ringtape::emulation {

enum class TensorType : uint8_t { bf16, f16, tf32 };

// A number of an operand: significand * 2^exponent, with at most 11 bits, or whatever is not finite. The exponent of
// zero is below those of all products, that of what is not finite above them, even if the other factor is the other.
struct TensorNumber {
  static constexpr int32_t kOfZero = -10000, kNotFinite = 20000;
  int32_t significand = 0, exponent = kOfZero;
  float special = 0;  // infinity or NaN; the significand is then 0
};
TensorNumber tensor_number(TensorType type, uint32_t bits);  // tf32: a float, of which the lowest 13 bits are ignored

// To TF32's 11 bits of significand, ties away from zero; what is not finite stays.
float rounded_to_tf32(float x);

// c + the sum of a[i] b[i], as an mma instruction of `count` products with an f32 result computes it: products are
// exact, each term is cut towards zero at a fixed number of fractional bits of the largest exponent, the cut terms are
// added exactly, and the sum is cut to a float. `major` is that of the compute capability: before 9, the halves are
// added one after the other. (Xie et al., "MMA-Sim: Bit-Accurate Reference Model of Tensor Cores and Matrix Cores",
// arXiv 2511.10909, who compared this with GPUs; no GPU was at hand here.)
float tensor_core_sum(TensorType type, const TensorNumber* a, const TensorNumber* b, int count, float c, int major);

// Operands of many such sums of Hopper, (columns, depth), whose sums with one a are computed together.
class TensorColumns {
 public:
  TensorColumns(const TensorNumber* b, int columns, int depth);
  void add_products(TensorType type, const TensorNumber* a, float* c) const;  // c (columns): as tensor_core_sum

 private:
  int columns_, depth_;
  bool finite_ = true;
  std::vector<TensorNumber> b_;
  std::vector<float> significands_;  // (depth, columns), as the exponents
  std::vector<int32_t> exponents_;
};

}  // namespace ringtape::emulation
