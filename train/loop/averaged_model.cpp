#include "train/loop/averaged_model.h"

#include <algorithm>

#include "autograd/autocast.h"
#include "nn/batch_norm.h"
#include "train/data/loader.h"
#include "train/evaluation/features.h"
#include "train/loop/step_parts.h"

namespace ringtape {
static void set_all(const Tensors& to, const Tensors& from) {
  copy_all(to, from);
  for (const Tensor& t : to) t.storage()->written_by("AveragedModel");
}

static void compute_statistics(const Task& task, std::vector<int64_t> samples, const EvalOptions& options) {
  const NoGrad no_grad;
  const Autocast autocast(options.precision);
  const Dataset& data = task.data.train;
  samples.resize(std::min(samples.size(), AveragedModel::kImages));
  const Loader loader(data, samples,
                      {.batch_size = std::min(eval_batch(data.image()), int64_t(samples.size())),
                       .drop_last = true,
                       .workers = options.workers,
                       .device = task.device});
  nn::BatchStatistics statistics(*task.model);
  for (const Batch& batch : loader.epoch(0)) {
    statistics.begin_batch();
    (*task.model)(batch.x);
  }
}

AveragedModel::Kept::Kept(nn::Module& model) {
  for (const Tensor* t : nn::running_statistics(model)) of_model.push_back(*t);
  before = clones(of_model);
}

AveragedModel::Kept::~Kept() { set_all(of_model, before); }

AveragedModel::AveragedModel(const Task& task, const Ema& ema, const std::vector<int64_t>& samples,
                             const Tensors& statistics, const EvalOptions& options)
    : weights_(ema), kept_(*task.model) {
  if (kept_.of_model.empty()) return;
  if (!statistics.empty()) set_all(kept_.of_model, statistics);
  else compute_statistics(task, samples, options);
}

}  // namespace ringtape
