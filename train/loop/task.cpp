#include "train/loop/task.h"

#include "nn/batch_norm.h"

namespace ringtape {

Tensor Task::classify(const Tensor& images) const {
  if (nn::Method* const m = method()) return m->classify(images);
  return replicas ? (*replicas)(images) : (*model)(images);
}

void Task::distribute(comm::ProcessGroup& group, bool sync_bn) const {
  if (group.size() > 1 && sync_bn) nn::synchronize_batch_norm(*model, &group);
  if (nn::Method* const m = method()) m->distribute(group);
}

}  // namespace ringtape
