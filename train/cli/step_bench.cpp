#include "train/cli/step_bench.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "autograd/create.h"
#include "comm/parallel/agreement.h"
#include "core/random.h"
#include "core/runtime.h"
#include "nn/batch_norm.h"
#include "train/model/methods.h"
#include "train/model/models.h"

namespace ringtape::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kBatches = 4;   // batches of images to generate
constexpr int64_t kRepeats = 16;  // of each image per epoch, so that the start of an epoch does not matter

double since(Clock::time_point& at) {
  const auto now = Clock::now();
  return std::chrono::duration<double>(now - std::exchange(at, now)).count();
}

// Random images for a few batches.
Dataset noise(const Shape& image, int64_t batch_size) {
  Dataset set;
  const int64_t n = kBatches * batch_size;
  set.name = "noise";
  set.images = Tensor({n, image[0], image[1], image[2]}, DType::u8);
  set.labels = Tensor({n}, DType::i64);
  for (int64_t i = 0; i < set.images.size(); i += 4) {
    const Philox4 bits = philox(1, uint64_t(Stream::synthetic), uint64_t(i));
    for (int64_t j = i; j < std::min(i + 4, set.images.size()); ++j)
      set.images.data<uint8_t>()[j] = uint8_t(bits.x[j - i]);
  }
  for (int64_t i = 0; i < n; ++i) set.labels.data<int64_t>()[i] = i * 7 % 10;
  set.classes = 10;
  set.mean.assign(size_t(image[2]), 0.5f), set.deviation.assign(size_t(image[2]), 0.25f);
  return set;
}

}  // namespace

StepBench::StepBench(const TrainOptions& o, comm::ProcessGroup& group)
    : options_(o), group_(group), device_(parse_device(o.execution.device)) {
  const ModelEntry& entry = find_model(o.model.name);
  const ModelSpec spec{entry.image, 10, o.model.chosen()};
  manual_seed(uint64_t(o.execution.seed));
  if (!o.self_supervised()) model_ = entry.make(spec);
  else model_ = make_method(method_plan(o), spec);
  nn::move_to(*model_, device_);
  if (group.size() > 1 && o.parallel.sync_bn) nn::synchronize_batch_norm(*model_, &group);
  learner_ = make_learner(options_, *model_);
  learner_->distribute(group);
  step_ = std::make_unique<Step>(*model_, learner_->objective(), o.step, o.execution, group, o.parallel);
  if (const std::string head = learner_->fixed_lr(); !head.empty()) step_->fix_lr(head, o.schedule.lr);
  loader_.emplace(make_loader());
  stays_ = next();
}

Loader StepBench::make_loader() const {
  const TrainOptions& o = options_;
  const Shape image = find_model(o.model.name).image;
  const Dataset images = noise(image, o.trainer.batch_size);
  LoaderConfig config{.batch_size = o.trainer.batch_size,
                      .shuffle = true,
                      .workers = int(o.execution.workers),
                      .device = device_,
                      .rank = group_.rank(),
                      .ranks = group_.size()};
  config = learner_->loading(std::move(config));
  if (config.views.empty()) {
    const bool colour = image[2] == 3;
    config.augmentation = {.pad = colour ? 4 : 0, .flip = colour};
    return Loader(images, all_samples(images), config);
  }
  std::vector<int64_t> samples;
  for (int64_t i = 0; i < kRepeats * images.size(); ++i) samples.push_back(i % images.size());
  return Loader(images, std::move(samples), config);
}

Batch StepBench::next() {
  const Batch* batch = epoch_ ? epoch_->next() : nullptr;
  if (!batch) {
    epoch_.emplace(loader_->epoch(epochs_++));
    batch = epoch_->next();
  }
  return *batch;
}

void StepBench::step(const Batch& batch, const std::function<void(Phase)>& ended) {
  learner_->begin_step({.step = step_->count(),
                        .steps = step_->count() + 1,
                        .epoch = epochs_ - 1,
                        .seed = uint64_t(options_.execution.seed)});
  step_->run(batch.images(), batch.y, options_.schedule.lr, ended, {batch.whole});
}

double StepBench::run(int64_t steps) {
  synchronize(device_);
  group_.barrier().wait();
  auto at = Clock::now();
  for (int64_t i = 0; i < steps; ++i) step(stays_.views.empty() ? stays_ : next());
  synchronize(device_);
  return slowest(since(at));
}

StepBench::Phases StepBench::run_apart(int64_t steps) {
  Phases phases;
  double* const parts[] = {&phases.forward, &phases.backward, &phases.optimizer};
  synchronize(device_);
  auto at = Clock::now();
  const auto ended = [&](Phase phase) {
    synchronize(device_);
    *parts[int(phase)] += since(at) / double(steps);
  };
  for (int64_t i = 0; i < steps; ++i) {
    const Batch batch = next();
    synchronize(device_);
    phases.data += since(at) / double(steps);
    step(batch, ended);
  }
  return phases;
}

// The maximum over ranks, so that all ranks continue with the same number.
double StepBench::slowest(double seconds) const {
  return max_over_ranks(group_, seconds);
}

}  // namespace ringtape::cli
