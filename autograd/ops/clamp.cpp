#include "kernels/clamp.h"

#include "autograd/ops/common.h"

namespace ringtape {

Tensor clamp(const Tensor& x, const Tensor& low, const Tensor& high) { return minimum(maximum(x, low), high); }

Tensor clamp(const Tensor& x, Scalar from, Scalar to) {
  check_defined(x, "clamp");
  const double low = from.real(), high = to.real();
  RT_CHECK_AS(UsageError, low <= high, "clamp: low ", low, " is above high ", high);
  if (!is_float(x.dtype())) return minimum(maximum(x, from), to);
  Tensor y = empty_like(x);
  clamp_forward(y, x, low, high);
  describe([&] { return OpAttributes{{"low", low}, {"high", high}}; });
  return record("clamp", {x}, y, [x = save(x), low, high](const Tensor& dy) -> Tensors {
    Tensor dx = empty_like(dy);
    clamp_backward(dx, *x, dy, low, high);
    return {dx};
  });
}

static Tensor call_clamp(const Tensors& t) { return clamp(t[0], -0.5, 0.75); }
static const RegisterOp register_clamp{{
    .name = "clamp",
    .samples = {{"odd", {{{3, 5}}}, call_clamp},
                {"large", {{{1, 67, 19}}}, call_clamp},
                {"scalar", {{{}}}, call_clamp},
                {"empty", {{{0, 3}}}, call_clamp}},
    .workloads = {{"4096x4096", {{{4096, 4096}}}, call_clamp}},
    .invalid = {{"bounds", {{{3}}}, [](const Tensors& t) { return clamp(t[0], 1, 0); }}},
    .kinks = {-0.5, 0.75},
}};

}  // namespace ringtape
