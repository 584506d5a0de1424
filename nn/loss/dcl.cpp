#include "nn/loss/dcl.h"

#include <limits>

#include "nn/loss/common.h"
#include "nn/loss/losses.h"

namespace ringtape::nn {

Tensor dcl_loss(const Tensor& z0, const Tensor& z1, double temperature, comm::ProcessGroup* group) {
  check_pair("dcl_loss", z0, z1);
  check_temperature("dcl_loss", temperature);
  const Autocast none(DType::f32);
  const Tensor q = l2_normalize(concat({wide(z0), wide(z1)})), k = rows_of(group, q);
  const int64_t n = z0.dim(0), rows = q.dim(0), first = shared(group) ? group->rank() * rows : 0;
  RT_CHECK_AS(UsageError, k.dim(0) >= 4, "dcl_loss: expected at least 2 images to compare, got 1");
  const auto swapped = [&](const Tensor& x) {
    return concat({slice(x, 0, n, rows), slice(x, 0, 0, n)});
  };  // rows of the other view
  const Tensor column = arange(k.dim(0), DType::f64, q.device());
  const Tensor own = reshape(slice(column, 0, first, first + rows), {rows, 1});
  const Tensor nothing = full({}, -std::numeric_limits<double>::infinity(), q.dtype(), q.device());
  const Tensor others = where(equal(column, own), nothing, linear(q, k) / temperature);
  const Tensor negatives = logsumexp(where(equal(column, swapped(own)), nothing, others), {1});
  return mean(negatives - sum(q * swapped(q), {1}) / temperature);
}

static const RegisterLoss register_dcl_loss({
    .name = "dcl",
    .over_ranks = OverRanks::gathers,
    .exact = true,
    .views = 2,
    .call = [](const Tensors& z, comm::ProcessGroup* group) { return dcl_loss(z[0], z[1], 0.1, group); },
});

}  // namespace ringtape::nn
