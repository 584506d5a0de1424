#include "nn/loss/memory_bank.h"

#include "nn/loss/common.h"
#include "nn/loss/losses.h"

namespace ringtape::nn {

Tensor memory_bank_loss(const Tensor& q, const Tensor& k, const Tensor& bank, double temperature) {
  check_pair("memory_bank_loss", q, k);
  RT_CHECK_AS(ShapeError, bank.defined() && bank.rank() == 2 && bank.dim(1) == q.dim(1),
              "memory_bank_loss: expected a bank (M, ", q.dim(1), "), got ",
              bank.defined() ? bank.shape().str() : "none");
  check_temperature("memory_bank_loss", temperature);
  const Autocast none(DType::f32);
  const Tensor query = l2_normalize(wide(q)), key = l2_normalize(wide(k.detach()));
  const Tensor positive = sum(query * key, {1}, true), negatives = linear(query, cast(bank.detach(), query.dtype()));
  return cross_entropy(concat({positive, negatives}, 1) / temperature, zeros({q.dim(0)}, DType::i64, q.device()));
}

static const RegisterLoss register_memory_bank_loss({
    .name = "memory_bank",
    .over_ranks = OverRanks::local,
    .exact = true,
    .views = 2,
    .call = [](const Tensors& z, comm::ProcessGroup*) { return memory_bank_loss(z[0], z[1], some_rows(7, z[0]), 0.1); },
});

}  // namespace ringtape::nn
