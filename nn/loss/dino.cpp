#include "nn/loss/dino.h"

#include "nn/loss/common.h"

namespace ringtape::nn {

Tensor dino_codes(const Tensor& scores, const Tensor& center, double temperature) {
  RT_CHECK_AS(ShapeError, scores.rank() == 2 && center.shape() == Shape{scores.dim(1)},
              "dino_codes: expected scores (n, K) and a centre (K), got ", scores.shape(), " and ", center.shape());
  check_temperature("dino_codes", temperature);
  const NoGrad no_grad;
  const Autocast none(DType::f32);
  const Tensor x = wide(scores.detach());
  return softmax((x - cast(center, x.dtype())) / temperature);
}

}  // namespace ringtape::nn
