#include "train/metrics.h"

#include "autograd/ops.h"
#include "kernels/topk.h"

namespace ringtape {

void Tally::add(const Tensor& loss, const Tensor& logits, const Tensor& labels) {
  Tensor rank(labels.shape(), DType::i64, labels.device());
  label_rank(rank, contiguous(logits.detach()), contiguous(labels));
  const Readback loss_now(loss.detach()), rank_now(rank);
  finish();
  pending_loss_ = loss_now;
  pending_rank_ = rank_now;
}

void Tally::finish() {
  if (!pending_loss_.defined()) return;
  const Tensor rank = pending_rank_.get();
  for (int64_t r : rank.span<int64_t>()) top1_ += r < 1, top5_ += r < 5;
  last_loss_ = pending_loss_.get().item();
  loss_ += last_loss_ * double(rank.size());
  samples_ += rank.size();
  pending_loss_ = {}, pending_rank_ = {};
}

}  // namespace ringtape
