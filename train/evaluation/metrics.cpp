#include "train/evaluation/metrics.h"

#include <cmath>

#include "autograd/create.h"
#include "autograd/ops.h"
#include "comm/process_group.h"
#include "core/part.h"
#include "kernels/topk.h"

namespace ringtape {

Tensor ranks_of(const Tensor& logits, const Tensor& labels) {
  RT_CHECK_AS(ShapeError, logits.rank() == 2 && labels.shape() == Shape{logits.dim(0)},
              "ranks_of: expected logits (B, classes) and labels (B), got ", logits.shape(), " and ", labels.shape());
  RT_CHECK_AS(DTypeError, is_float(logits.dtype()), "ranks_of: expected floating-point logits, got ", logits.dtype());
  if (labels.dtype() == DType::i32) return ranks_of(logits, cast(labels, DType::i64));
  RT_CHECK_AS(DTypeError, labels.dtype() == DType::i64, "ranks_of: expected labels of i64 or i32, got ",
              labels.dtype());
  const Tensor ranks(labels.shape(), DType::i64, labels.device());
  if (labels.size() > 0) label_rank(ranks, contiguous(logits.detach()), contiguous(labels));
  return ranks;
}

void Tally::add(const Tensor& loss, const Tensor& logits, const Tensor& labels) {
  add(loss, logits.defined() ? ranks_of(logits, labels) : Tensor(), labels.size());
}

void Tally::add(const Tensor& loss, const Tensor& ranks, int64_t samples) {
  const Readback loss_now(loss.detach()), ranks_now = ranks.defined() ? Readback(ranks) : Readback();
  finish();
  pending_loss_ = loss_now;
  pending_ranks_ = ranks_now;
  pending_samples_ = samples;
}

void Tally::add(double loss, int64_t samples, int64_t top1, int64_t top5) {
  totals_.loss += loss * double(samples);
  totals_.samples += samples, totals_.top1 += top1, totals_.top5 += top5;
}

void Tally::finish() {
  if (!pending_loss_.defined()) return;
  const Tensor ranks = pending_ranks_.defined() ? pending_ranks_.get() : Tensor();
  if (ranks.defined())
    for (int64_t r : ranks.span<int64_t>()) totals_.top1 += r < 1, totals_.top5 += r < 5;
  totals_.loss += pending_loss_.get().item() * double(pending_samples_);
  totals_.samples += pending_samples_;
  pending_loss_ = {}, pending_ranks_ = {};
}

bool Tally::finite() const { return std::isfinite(totals_.loss); }

Tally of_all(comm::ProcessGroup& group, const Tally& own) {
  const Tally::Totals& t = own.totals();
  if (group.size() == 1) return Tally(t);
  const Tensor sums = from_host(std::vector<double>{double(t.samples), double(t.top1), double(t.top5), t.loss}, {4},
                                group.transport().device());
  group.all_reduce(sums).wait();
  const Tensor host = sums.copy_to(Device{});
  const auto s = host.span<double>();
  return Tally({int64_t(s[0]), int64_t(s[1]), int64_t(s[2]), s[3]});
}

Tally of_shares(comm::ProcessGroup& group, const std::vector<Tally>& own, int64_t shares) {
  constexpr size_t kValues = 4;
  std::vector<double> values(size_t(shares) * kValues);
  size_t at = size_t(part_of(shares, group.size(), group.rank()).begin) * kValues;
  for (const Tally& tally : own)
    for (const double value : {double(tally.totals().samples), double(tally.totals().top1), double(tally.totals().top5),
                               tally.totals().loss})
      values[at++] = value;
  const Tensor all = from_host(values, {int64_t(values.size())}, group.transport().device());
  group.all_reduce(all).wait();  // the other ranks' are zeros
  const Tensor host = all.copy_to(Device{});
  Tally::Totals out;
  for (const double* s = host.data<double>(); s < host.data<double>() + values.size(); s += kValues) {
    out.samples += int64_t(s[0]), out.top1 += int64_t(s[1]), out.top5 += int64_t(s[2]);
    out.loss += s[3];
  }
  return Tally(out);
}

}  // namespace ringtape
