#include "kernels/dropout.h"

#include "autograd/create.h"
#include "autograd/ops/common.h"

namespace ringtape {

Tensor dropout(const Tensor& x, double p, std::optional<RandomState> state) {
  check_float(x, "dropout");
  RT_CHECK_AS(UsageError, p >= 0 && p <= 1, "dropout: probability ", p, " is not in [0, 1]");
  if (p == 0) return x;
  const RandomState drawn = state ? *state : default_generator().reserve(x.size());
  const Tensor dense = contiguous(x);
  Tensor y = empty_like(dense);
  dropout_forward(y, dense, p, drawn);
  return record("dropout", {dense}, y, [p, drawn](const Tensor& dy) -> Tensors {
    Tensor dx = empty_like(dy);
    dropout_forward(dx, contiguous(dy), p, drawn);
    return {dx};
  });
}

static Tensor call_dropout(const Tensors& t) { return dropout(t[0], 0.3, RandomState{7, Stream::tensors, 0}); }
static const RegisterOp register_dropout{{
    .name = "dropout",
    .samples = {{"odd", {{{3, 5}}}, call_dropout},
                {"large", {{{67, 19}}}, call_dropout},
                {"empty", {{{0, 3}}}, call_dropout},
                {"all", {{{3, 5}}}, [](const Tensors& t) { return dropout(t[0], 1); }},
                {"none", {{{3, 5}}}, [](const Tensors& t) { return dropout(t[0], 0); }}},
    .workloads = {{"4096x4096", {{{4096, 4096}}}, call_dropout}},
    .invalid = {{"probability", {{{3}}}, [](const Tensors& t) { return dropout(t[0], 1.5); }}},
}};

}  // namespace ringtape
