#include "nn/loss/swav.h"

#include "core/part.h"
#include "nn/loss/common.h"
#include "nn/loss/losses.h"

namespace ringtape::nn {

// This rank's part of rows that are the same on all ranks.
static Tensor own_rows(const comm::ProcessGroup* group, const Tensor& rows) {
  if (!shared(group)) return rows;
  const Part own = part_of(rows.dim(0), group->size(), group->rank());
  return slice(rows, 0, own.begin, own.end);
}

// logsumexp over all ranks' rows, (1, K).
static Tensor column_sums(comm::ProcessGroup* group, const Tensor& x) {
  return logsumexp(rows_of(group, logsumexp(x, {0}, true)), {0}, true);
}

Tensor sinkhorn(const Tensor& scores, const SinkhornOptions& options, comm::ProcessGroup* group, const Tensor& queue) {
  RT_CHECK_AS(ShapeError, scores.defined() && scores.rank() == 2 && scores.dim(1) > 0,
              "sinkhorn: expected scores (n, K), got ", scores.defined() ? scores.shape().str() : "none");
  RT_CHECK_AS(ShapeError, !queue.defined() || (queue.rank() == 2 && queue.dim(1) == scores.dim(1)),
              "sinkhorn: expected a queue (M, ", scores.dim(1), "), got ", queue.shape());
  RT_CHECK_AS(UsageError, options.epsilon > 0 && options.iterations > 0, "sinkhorn: epsilon ", options.epsilon, " and ",
              options.iterations, " iterations, both must be above 0");
  const NoGrad no_grad;
  const Autocast none(DType::f32);
  const Tensor own = wide(scores.detach());
  Tensor x = (queue.defined() ? concat({own, cast(own_rows(group, queue), own.dtype())}) : own) / options.epsilon;
  for (int i = 0; i < options.iterations; ++i) {
    x = x - column_sums(group, x);
    x = log_softmax(x);
  }
  return exp(slice(x, 0, 0, scores.dim(0)));
}

Tensor swav_loss(const Tensors& scores, const Tensors& codes, double temperature) {
  const size_t crops = scores.size(), coded = codes.size();
  RT_CHECK_AS(ShapeError, crops >= 2 && coded >= 1 && coded <= crops,
              "swav_loss: expected the scores of 2 crops or more and codes of the first of them, got ", crops, " and ",
              coded);
  for (const Tensor& s : scores) check_pair("swav_loss", scores[0], s);
  for (const Tensor& q : codes) check_pair("swav_loss", scores[0], q);
  check_temperature("swav_loss", temperature);
  const Autocast none(DType::f32);
  const auto code = [&](size_t i) { return cast(codes[i].detach(), wide(scores[0]).dtype()); };
  Tensor loss;
  for (size_t v = 0; v < crops; ++v) {
    Tensor target;  // sum of the other crops' codes
    for (size_t i = 0; i < coded; ++i)
      if (i != v) target = target.defined() ? target + code(i) : code(i);
    if (!target.defined()) continue;
    const Tensor part = sum(target * log_softmax(wide(scores[v]) / temperature));
    loss = loss.defined() ? loss + part : part;
  }
  return loss / -double(scores[0].dim(0) * int64_t(coded * (crops - 1)));
}

// Uses embeddings as scores: two crops of full size and one more.
static Tensor of_embeddings(const Tensors& z, comm::ProcessGroup* group, const Tensor& queue) {
  return swav_loss(z, {sinkhorn(z[0], {}, group, queue), sinkhorn(z[1], {}, group, queue)}, 0.1);
}
static const RegisterLoss register_swav_loss({
    .name = "swav",
    .over_ranks = OverRanks::balances,
    .exact = true,
    .views = 3,
    .call = [](const Tensors& z, comm::ProcessGroup* group) { return of_embeddings(z, group, {}); },
});
static const RegisterLoss register_swav_queue_loss({
    .name = "swav_queue",
    .over_ranks = OverRanks::balances,
    .exact = true,
    .views = 3,
    .call = [](const Tensors& z, comm::ProcessGroup* group) { return of_embeddings(z, group, some_rows(5, z[0])); },
});

}  // namespace ringtape::nn
