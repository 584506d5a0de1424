#pragma once
#include <memory>

#include "core/tensor.h"

// Mixed precision: parameters stay f32. While an Autocast lives, ops convert their operands through cast() according to
// the table below, so that those that gain compute in 16 bits. Gradients arrive in the dtype of the original operand.
// An op with an f64 operand is not affected. Ops that are not in the table take their operands as they are (elementwise
// ones of several dtypes have the result type of autograd/scalar.h). Matrix products, reductions, softmax and losses
// accumulate in f32 for any operands; cross_entropy returns f32.
namespace ringtape {

enum class CastPolicy : uint8_t {
  lower,   // to the 16-bit dtype: ops for matrix units
  full,    // to f32: ops whose 16-bit result would overflow or lose too much precision
  widest,  // to the widest dtype among the operands
};
struct AutocastRule {
  std::string_view op;
  CastPolicy policy;
};
inline constexpr AutocastRule kAutocastRules[] = {
    {"linear", CastPolicy::lower},
    {"matmul", CastPolicy::lower},
    {"conv2d", CastPolicy::lower},
    {"einsum", CastPolicy::lower},
    {"residual_block", CastPolicy::lower},
    {"scaled_dot_product_attention", CastPolicy::lower},
    {"self_attention", CastPolicy::lower},

    {"exp", CastPolicy::full},
    {"expm1", CastPolicy::full},
    {"log", CastPolicy::full},
    {"log2", CastPolicy::full},
    {"log1p", CastPolicy::full},
    {"rsqrt", CastPolicy::full},
    {"reciprocal", CastPolicy::full},
    {"softplus", CastPolicy::full},
    {"pow", CastPolicy::full},
    {"sum", CastPolicy::full},
    {"prod", CastPolicy::full},
    {"var", CastPolicy::full},
    {"norm", CastPolicy::full},
    {"logsumexp", CastPolicy::full},
    {"softmax", CastPolicy::full},
    {"log_softmax", CastPolicy::full},
    {"l2_normalize", CastPolicy::full},
    {"standard_deviation", CastPolicy::full},
    {"mse_loss", CastPolicy::full},
    {"l1_loss", CastPolicy::full},
    {"smooth_l1_loss", CastPolicy::full},
    {"huber_loss", CastPolicy::full},
    {"kl_div", CastPolicy::full},
    {"cumsum", CastPolicy::full},
    {"binary_cross_entropy_with_logits", CastPolicy::full},

    {"concat", CastPolicy::widest},
    {"scatter_add", CastPolicy::widest},
};

// While it lives, ops on this thread convert their operands, except in backward(). A leaf is converted to 16 bits once,
// unless it is written to in between. f32 means no conversion, and suspends an outer Autocast. Throws DTypeError for
// dtypes other than f32, bf16 and f16.
class Autocast {
 public:
  explicit Autocast(DType dtype);
  ~Autocast();
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  friend class CastTo;
  friend DType autocast_dtype();
  struct Cache;
  DType dtype_;
  std::unique_ptr<Cache> cache_;  // null for f32
  Autocast* before_;
};
DType autocast_dtype();  // f32 if there is none

// The conversion of an op's operands: true if any needs it, and a function that converts one.
class CastTo {
 public:
  CastTo() = default;
  CastTo(const char* op, std::span<const Tensor* const> operands);
  explicit operator bool() const { return convert_; }
  Tensor operator()(const Tensor& x) const;

 private:
  bool convert_ = false;
  DType dtype_ = DType::f32;
};

extern constinit thread_local Autocast* current_autocast;  // null if nothing is converted

// The first line of each op in the table: if (const CastTo to = autocast("linear", x, w)) return linear(to(x), to(w));
template <class... T> CastTo autocast(const char* op, const T&... operands) {
  if (!current_autocast) [[likely]]
    return {};
  const Tensor* const all[] = {&operands...};
  return CastTo(op, all);
}
inline CastTo autocast(const char* op, const Tensors& operands) {
  if (!current_autocast) [[likely]]
    return {};
  std::vector<const Tensor*> all;
  for (const Tensor& x : operands) all.push_back(&x);
  return CastTo(op, all);
}

}  // namespace ringtape
