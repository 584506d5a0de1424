#include "nn/loss/negative_cosine.h"

#include "nn/loss/common.h"
#include "nn/loss/losses.h"

namespace ringtape::nn {

Tensor negative_cosine(const Tensor& p, const Tensor& z) {
  check_pair("negative_cosine", p, z);
  constexpr double eps = 1e-8;
  const Autocast none(DType::f32);
  const Tensor cosines = sum(l2_normalize(wide(p), -1, eps) * l2_normalize(wide(z.detach()), -1, eps), {1});
  return -mean(cosines);
}

static const RegisterLoss register_negative_cosine_loss({
    .name = "negative_cosine",
    .over_ranks = OverRanks::local,
    .exact = true,
    .views = 2,
    .call = [](const Tensors& z, comm::ProcessGroup*) { return negative_cosine(z[0], z[1]); },
});

}  // namespace ringtape::nn
