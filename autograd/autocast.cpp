#include "autograd/autocast.h"

#include <algorithm>
#include <optional>
#include <unordered_map>

#include "autograd/ops.h"
#include "autograd/tape.h"

namespace ringtape {

constinit thread_local Autocast* current_autocast = nullptr;

// Converted leaves, by their nodes. Each entry keeps its node alive.
struct Autocast::Cache {
  struct Entry {
    Tensor cast;
    uint32_t version;  // of the leaf's storage
  };
  std::unordered_map<const Node*, Entry> entries;
};

Autocast::Autocast(DType dtype) : dtype_(dtype), before_(current_autocast) {
  const bool half = dtype == DType::bf16 || dtype == DType::f16;
  RT_CHECK_AS(DTypeError, half || dtype == DType::f32, "Autocast: to f32, bf16 or f16, not to ", dtype);
  if (half) cache_ = std::make_unique<Cache>();
  current_autocast = half ? this : nullptr;
}

Autocast::~Autocast() { current_autocast = before_; }

DType autocast_dtype() { return current_autocast ? current_autocast->dtype_ : DType::f32; }

CastTo::CastTo(const char* op, std::span<const Tensor* const> operands) {
  const auto rule = std::find_if(std::begin(kAutocastRules), std::end(kAutocastRules),
                                 [op](const AutocastRule& r) { return r.op == op; });
  if (rule == std::end(kAutocastRules)) return;
  std::optional<DType> widest;
  for (const Tensor* x : operands) {
    if (!x->defined() || !is_float(x->dtype())) continue;
    if (x->dtype() == DType::f64) return;
    widest = widest.value_or(x->dtype()) == x->dtype() ? x->dtype() : DType::f32;  // also for bf16 with f16
  }
  switch (rule->policy) {
    case CastPolicy::lower: dtype_ = autocast_dtype(); break;
    case CastPolicy::full: dtype_ = DType::f32; break;
    case CastPolicy::widest: dtype_ = widest.value_or(DType::f32); break;
  }
  convert_ = std::any_of(operands.begin(), operands.end(),
                         [&](const Tensor* x) { return x->defined() && is_float(x->dtype()) && x->dtype() != dtype_; });
}

Tensor CastTo::operator()(const Tensor& x) const {
  if (!x.defined() || !is_float(x.dtype()) || x.dtype() == dtype_) return x;
  const bool leaf = x.node() && !x.node()->backward;
  if (!leaf || !grad_enabled() || !current_autocast || dtype_ != current_autocast->dtype_) return cast(x, dtype_);
  Autocast::Cache::Entry& entry = current_autocast->cache_->entries[x.node().get()];
  if (!entry.cast.defined() || entry.version != x.storage()->version())
    entry = {cast(x, dtype_), x.storage()->version()};
  return entry.cast;
}

}  // namespace ringtape
