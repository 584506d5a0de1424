#pragma once
#include <vector>

#include "nn/module.h"

namespace ringtape::comm {
class ProcessGroup;
}

namespace ringtape::nn {

// Throws UsageError unless `size` is a multiple of the batch size n: otherwise some rows would stay longer than others.
// `what`: the queue's name in messages.
void check_queue(const char* what, int64_t size, int64_t n);

// The last rows, normalised to length 1, of all ranks' outputs, (size, D), newest first; the same on all ranks.
// Initially random. The two views share one queue, or each has its own.
class Queue {
 public:
  // `what`: its name in messages. Throws UsageError for size 0.
  Queue(const char* what, int64_t size, int64_t width, bool per_view = false);

  const Tensor& rows(size_t view) const { return rows_[view % rows_.size()]; }
  int64_t size() const { return rows_[0].dim(0); }
  // Adds x (n, D) of a view; normalises it.
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
