#pragma once
#include <vector>

#include "core/readback.h"

namespace ringtape {

namespace comm {
class ProcessGroup;
}

// (B) i64: how many classes are before the label's, by their logits (B, C).
Tensor ranks_of(const Tensor& logits, const Tensor& labels);

// Mean loss and accuracy over batches. Values are read from the device one add() late, so that add() does not wait.
class Tally {
 public:
  // loss (): the mean over the batch; logits (B, C); labels (B) i64. Without logits, no sample counts as correct.
  void add(const Tensor& loss, const Tensor& logits, const Tensor& labels);
  // The same with ranks_of(logits, labels), or an undefined tensor.
  void add(const Tensor& loss, const Tensor& ranks, int64_t samples);
  // The same for a batch over all ranks whose results are known.
  void add(double loss, int64_t samples, int64_t top1, int64_t top5);
  void finish();  // reads the last batch

  int64_t samples() const { return totals_.samples; }
  double loss() const { return totals_.loss / double(samples()); }          // NaN before the first batch is read
  double top1() const { return double(totals_.top1) / double(samples()); }  // in [0, 1]
  double top5() const { return double(totals_.top5) / double(samples()); }
  bool finite() const;  // whether every loss so far was finite

  // The sums so far; a Tally constructed from them continues this one.
  struct Totals {
    int64_t samples = 0, top1 = 0, top5 = 0;
    double loss = 0;  // summed over samples
  };
  const Totals& totals() const { return totals_; }
  Tally() = default;
  explicit Tally(const Totals& totals) : totals_(totals) {}

 private:
  Readback pending_loss_, pending_ranks_;
  int64_t pending_samples_ = 0;
  Totals totals_;
};

Tally of_all(comm::ProcessGroup& group, const Tally& own);  // the sum over ranks; a collective
// The sum over fixed shares in their order, of which a rank has those of part_of(shares, ranks, rank); a collective.
Tally of_shares(comm::ProcessGroup& group, const std::vector<Tally>& own, int64_t shares);

}  // namespace ringtape
