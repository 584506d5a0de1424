#include "nn/loss/vicreg.h"

#include "nn/loss/common.h"
#include "nn/loss/losses.h"

namespace ringtape::nn {

Tensor vicreg_loss(const Tensor& z0, const Tensor& z1, const VicregOptions& options, comm::ProcessGroup* group) {
  check_pair("vicreg_loss", z0, z1);
  const Autocast none(DType::f32);
  const Tensor both = rows_of(group, concat({wide(z0), wide(z1)}, 1));
  const int64_t n = both.dim(0), d = z0.dim(1);
  RT_CHECK_AS(ShapeError, n > 1, "vicreg_loss: a variance needs 2 rows or more, got ", z0.shape());
  Tensor loss = mean(square(slice(both, 1, 0, d) - slice(both, 1, d, 2 * d))) * options.invariance;
  const Tensor centred = both - mean(both, {0});
  for (const int64_t begin : {int64_t{0}, d}) {
    const Tensor z = slice(centred, 1, begin, begin + d), covariance = matmul(transpose(z), z) / double(n - 1);
    const Tensor hinge = relu(1 - sqrt(diagonal(covariance) + options.eps));
    loss = loss + mean(hinge) * (options.variance / 2) +
           sum(square(off_diagonal(covariance))) * (options.covariance / double(d));
  }
  return loss;
}

static const RegisterLoss register_vicreg_loss({
    .name = "vicreg",
    .over_ranks = OverRanks::gathers,
    .exact = true,
    .views = 2,
    .call = [](const Tensors& z, comm::ProcessGroup* group) { return vicreg_loss(z[0], z[1], {}, group); },
});

}  // namespace ringtape::nn
