#include "nn/ssl/queue.h"

#include "autograd/create.h"
#include "comm/parallel/ops.h"

namespace ringtape::nn {

Queue::Queue(const char* what, int64_t size, int64_t width, bool per_view) : what_(what) {
  RT_CHECK_AS(UsageError, size > 0, what, ": a queue of ", size, " rows; expected at least 1");
  for (int i = 0; i < (per_view ? 2 : 1); ++i) rows_.push_back(l2_normalize(randn({size, width})));
}

void check_queue(const char* what, int64_t size, int64_t n) {
  RT_CHECK_AS(UsageError, n > 0 && size % n == 0, "--queue ", size, ": ", what,
              " fills the queue with whole batches; expected a multiple of --batch-size ", n);
}

void Queue::push(comm::ProcessGroup* group, size_t view, const Tensor& x) {
  const NoGrad no_grad;
  const int64_t n = x.dim(0) * (group ? group->size() : 1);
  check_queue(what_, size(), n);
  Tensor& rows = rows_[view % rows_.size()];
  Tensor fresh = l2_normalize(cast(x.detach(), rows.dtype()));
  if (group) fresh = comm::all_gather(*group, contiguous(fresh));
  // A new tensor, since backward() may still read the old one.
  rows = size() == n ? fresh : concat({fresh, slice(rows, 0, 0, size() - n)});
}

}  // namespace ringtape::nn
