#pragma once
#include "core/readback.h"

namespace ringtape {

// Mean loss and accuracy over batches. Values are read from the device one add() late, so that it never
// waits.
class Tally {
 public:
  // loss (): the mean over the batch; logits (B, C); labels (B) i64.
  void add(const Tensor& loss, const Tensor& logits, const Tensor& labels);
  void finish();  // reads the last one

  int64_t samples() const { return samples_; }
  double loss() const { return loss_ / double(samples_); }          // NaN before the first
  double top1() const { return double(top1_) / double(samples_); }  // in [0, 1]
  double top5() const { return double(top5_) / double(samples_); }
  double last_loss() const { return last_loss_; }

 private:
  Readback pending_loss_, pending_rank_;
  int64_t samples_ = 0, top1_ = 0, top5_ = 0;
  double loss_ = 0, last_loss_ = 0;
};

}  // namespace ringtape
