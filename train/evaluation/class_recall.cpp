#include "train/evaluation/class_recall.h"

#include <algorithm>
#include <limits>

#include "autograd/create.h"
#include "comm/process_group.h"

namespace ringtape {

void ClassRecall::add(const Tensor& ranks, const Tensor& labels) {
  const Readback ranks_now(ranks), labels_now(labels);
  read();
  pending_ranks_ = ranks_now, pending_labels_ = labels_now;
}

void ClassRecall::read() {
  if (!pending_labels_.defined()) return;
  const Tensor ranks = pending_ranks_.get(), labels = pending_labels_.get();
  for (int64_t i = 0; i < labels.size(); ++i) {
    const auto label = size_t(labels.data<int64_t>()[i]);
    counts_.at(label) += 1;
    if (ranks.data<int64_t>()[i] < 1) counts_.at(counts_.size() / 2 + label) += 1;
  }
  pending_ranks_ = {}, pending_labels_ = {};
}

ClassRecall::Summary ClassRecall::of_all(comm::ProcessGroup& group) {
  read();
  if (group.size() > 1) {
    const Tensor sums = from_host(counts_, {int64_t(counts_.size())}, group.transport().device());
    group.all_reduce(sums).wait();
    const Tensor host = sums.copy_to(Device{});
    counts_.assign(host.data<double>(), host.data<double>() + host.size());
  }
  const size_t classes = counts_.size() / 2;
  double sum = 0, present = 0, least = std::numeric_limits<double>::infinity(), most = 0;
  for (size_t c = 0; c < classes; ++c) {
    const double images = counts_[c];
    if (images == 0) continue;
    sum += counts_[classes + c] / images, ++present;
    least = std::min(least, images), most = std::max(most, images);
  }
  return {sum / present, most > 2 * least};
}

}  // namespace ringtape
