#include "nn/loss/nt_xent.h"

#include <limits>

#include "nn/loss/common.h"

namespace ringtape::nn {

Tensor nt_xent_loss(const Tensor& z0, const Tensor& z1, double temperature, comm::ProcessGroup* group) {
  check_pair("nt_xent_loss", z0, z1);
  check_temperature("nt_xent_loss", temperature);
  const Autocast none(DType::f32);
  const Tensor q = l2_normalize(concat({wide(z0), wide(z1)})), k = rows_of(group, q);
  const int64_t rows = q.dim(0), n = rows / 2, first = shared(group) ? group->rank() * rows : 0;
  const Tensor row = reshape(arange(rows, DType::i64, q.device()), {rows, 1}), column = arange(k.dim(0), DType::i64, q.device());
  const Tensor own = equal(cast(column, DType::f64), cast(row, DType::f64) + double(first));
  const Tensor scores = matmul(q, transpose(k)) / temperature;
  const Tensor masked = where(own, full({}, -std::numeric_limits<double>::infinity(), q.dtype(), q.device()), scores);
  std::vector<int64_t> other(static_cast<size_t>(rows));
  for (int64_t i = 0; i < rows; ++i) other[size_t(i)] = first + (i + n) % rows;
  return cross_entropy(masked, from_host(other, {rows}, q.device()));
}

}  // namespace ringtape::nn
