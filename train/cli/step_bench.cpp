#include "train/cli/step_bench.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "autograd/create.h"
#include "comm/parallel/agreement.h"
#include "core/random.h"
#include "core/runtime.h"
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

StepBench::StepBench(const TrainOptions& o, int64_t pixels, comm::ProcessGroup& group) : options_(o), group_(group) {
  const ModelEntry& entry = find_model(o.model.name);
  task_.device = parse_device(o.execution.device);
  const Shape image = pixels ? Shape{pixels, pixels, entry.image[2]} : entry.image;
  task_.data.train = noise(image, o.trainer.batch_size);
  task_.model_name = o.model.name, task_.method_name = o.method.name;
  task_.spec = {image, 10, o.model.chosen()};
  manual_seed(uint64_t(o.execution.seed));
  if (!o.self_supervised()) task_.model = entry.make(task_.spec);
  else task_.model = make_method(method_plan(o), task_.spec);
  nn::move_to(*task_.model, task_.device);
  task_.distribute(group, o.parallel.sync_bn);
  learner_ = make_learner(options_, task_, {all_samples(task_.data.train), {}}, group.size());
  step_ = make_step(o, task_, *learner_, o.schedule.lr, group);
  loader_.emplace(make_loader());
  stays_ = next();
}

Loader StepBench::make_loader() const {
  const TrainOptions& o = options_;
  const Dataset& images = task_.data.train;
  LoaderConfig config = learner_->loading({.batch_size = o.trainer.batch_size,
                                           .shuffle = true,
                                           .workers = int(o.execution.workers),
                                           .device = task_.device,
                                           .rank = group_.rank(),
                                           .ranks = group_.size()});
  if (config.views.empty()) {
    const bool colour = images.images.dim(3) == 3;
    config.augmentation = {.pad = colour ? 4 : 0, .flip = colour};
    return Loader(images, learner_->split.train, config);
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

void StepBench::step(const Batch& batch, const std::function<void(StepPhase)>& ended) {
  learner_->begin_step({.step = step_->count(),
                        .steps = step_->count() + 1,
                        .epoch = epochs_ - 1,
                        .seed = uint64_t(options_.execution.seed),
                        .on_weights = [&](const std::function<void()>& write) { step_->write_weights(write); }});
  step_->run(batch.images(), batch.labels(), options_.schedule.lr, ended,
             {.samples = batch.global_size, .apart = bool(ended)});
}

double StepBench::run(int64_t steps) {
  synchronize(task_.device);
  group_.barrier().wait();
  auto at = Clock::now();
  for (int64_t i = 0; i < steps; ++i) step(stays_.views.empty() ? stays_ : next());
  synchronize(task_.device);
  return slowest(since(at));
}

StepBench::Phases StepBench::run_apart(int64_t steps) {
  Phases phases;
  synchronize(task_.device);
  auto at = Clock::now();
  const auto ended = [&](StepPhase phase) {
    synchronize(task_.device);
    double& part = phase == StepPhase::forward    ? phases.forward
                   : phase == StepPhase::backward ? phases.backward
                                                  : phases.optimizer;
    part += since(at) / double(steps);
  };
  for (int64_t i = 0; i < steps; ++i) {
    const Batch batch = next();
    synchronize(task_.device);
    phases.data += since(at) / double(steps);
    step(batch, ended);
  }
  return phases;
}

// The maximum over ranks, so that all ranks continue with the same number.
double StepBench::slowest(double seconds) const { return max_over_ranks(group_, seconds); }

}  // namespace ringtape::cli
