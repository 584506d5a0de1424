#include "nn/loss/spread.h"

#include "nn/loss/common.h"

namespace ringtape::nn {

Tensor spread(const Tensor& z) {
  RT_CHECK_AS(ShapeError, z.defined() && z.rank() == 2 && z.dim(0) > 1 && z.dim(1) > 0,
              "spread: expected embeddings (n, D) of 2 rows or more, got ", z.defined() ? z.shape().str() : "none");
  const NoGrad no_grad;
  const Autocast none(DType::f32);
  return mean(sqrt(var(l2_normalize(wide(z.detach())), {0})));
}

}  // namespace ringtape::nn
