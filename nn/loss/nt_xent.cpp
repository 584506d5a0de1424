#include "nn/loss/nt_xent.h"

#include "nn/loss/common.h"
#include "nn/loss/losses.h"

namespace ringtape::nn {

Tensor nt_xent_loss(const Tensor& z0, const Tensor& z1, double temperature, comm::ProcessGroup* group) {
  check_pair("nt_xent_loss", z0, z1);
  check_temperature("nt_xent_loss", temperature);
  const Autocast none(DType::f32);
  const Tensor q = l2_normalize(concat({wide(z0), wide(z1)}));
  return nt_xent(q, rows_of(group, q), shared(group) ? group->rank() * q.dim(0) : 0, temperature);
}

static const RegisterLoss register_nt_xent_loss({
    .name = "nt_xent",
    .over_ranks = OverRanks::gathers,
    .exact = true,
    .views = 2,
    .call = [](const Tensors& z, comm::ProcessGroup* group) { return nt_xent_loss(z[0], z[1], 0.5, group); },
});

}  // namespace ringtape::nn
