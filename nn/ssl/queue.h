#pragma once
#include "nn/module.h"

namespace ringtape::comm {
class ProcessGroup;
}

namespace ringtape::nn {

// The last rows of length 1 that a training has made, (size, D), the newest first: its own and those of all ranks, so that all have the
// same. Begins with random ones.
class Queue {
 public:
  // `what`: how messages call it. Throws UsageError for a size of 0.
  Queue(const char* what, int64_t size, int64_t width);

  const Tensor& rows() const { return rows_; }
  int64_t size() const { return rows_.dim(0); }
  // Throws UsageError unless whole batches of n rows fill it: else some rows would count for longer than others.
  void check_batch(int64_t n) const;
  // x (n, D), normalised here.
  void push(comm::ProcessGroup* group, const Tensor& x);
  void visit(Visitor& v) { v.buffer("queue", rows_); }

 private:
  const char* what_;
  Tensor rows_;
};

}  // namespace ringtape::nn
