#pragma once
#include <vector>

#include "nn/module.h"

namespace ringtape::comm {
class ProcessGroup;
}

namespace ringtape::nn {

// Throws UsageError unless whole batches of n rows fill a queue of that size: else some rows would count for longer
// than others. `what`: how messages call it.
void check_queue(const char* what, int64_t size, int64_t n);

// The last rows of length 1 that a training has made, (size, D), the newest first: its own and those of all ranks, so
// that all have the same. Begins with random ones. The two views share them, or each has its own.
class Queue {
 public:
  // `what`: its name in messages. Throws UsageError for size 0.
  Queue(const char* what, int64_t size, int64_t width, bool per_view = false);

  const Tensor& rows(size_t view) const { return rows_[view % rows_.size()]; }
  int64_t size() const { return rows_[0].dim(0); }
  // x (n, D), of that view; normalised here.
  void push(comm::ProcessGroup* group, size_t view, const Tensor& x);
  void visit(Visitor& v) {
    v.buffer("queue", rows_[0]);
    if (rows_.size() > 1) v.buffer("second_queue", rows_[1]);
  }

 private:
  const char* what_;
  std::vector<Tensor> rows_;
};

}  // namespace ringtape::nn
