#include "nn/loss/nt_xent.h"

#include "nn/loss/common.h"

namespace ringtape::nn {

Tensor nt_xent_loss(const Tensor& z0, const Tensor& z1, double temperature, comm::ProcessGroup* group) {
  check_pair("nt_xent_loss", z0, z1);
  check_temperature("nt_xent_loss", temperature);
  const Autocast none(DType::f32);
  const Tensor q = l2_normalize(concat({wide(z0), wide(z1)}));
  return nt_xent(q, rows_of(group, q), shared(group) ? group->rank() * q.dim(0) : 0, temperature);
}

}  // namespace ringtape::nn
