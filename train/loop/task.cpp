#include "train/loop/task.h"

#include "nn/batch_norm.h"

namespace ringtape {

Tensor Task::classify(const Tensor& images) const {
  if (nn::Method* const m = method()) return m->classify(images);
  return replicas ? (*replicas)(images) : (*model)(images);
}

void Task::distribute(comm::ProcessGroup& group, bool sync_bn) const {
  if (sync_bn && !replicas) nn::synchronize_batch_norm(*model, group.size() > 1 ? &group : nullptr);
  if (nn::Method* const m = method()) m->distribute(group);
}

}  // namespace ringtape
