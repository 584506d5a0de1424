#include "train/cli/step_bench.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "autograd/create.h"
#include "core/random.h"
#include "core/runtime.h"
#include "nn/batch_norm.h"
#include "train/methods.h"
#include "train/models.h"

namespace ringtape::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kBatches = 4;   // that there are images for
constexpr int64_t kRepeats = 16;  // of each image in an epoch, which is long enough for its beginning not to count

double since(Clock::time_point& at) {
  const auto now = Clock::now();
  return std::chrono::duration<double>(now - std::exchange(at, now)).count();
}

// Random images, enough for a few batches.
Dataset noise(const Shape& image, int64_t batch_size) {
  Dataset set;
  const int64_t n = kBatches * batch_size;
  set.name = "noise";
  set.images = Tensor({n, image[0], image[1], image[2]}, DType::u8);
  set.labels = Tensor({n}, DType::i64);
  for (int64_t i = 0; i < set.images.size(); i += 4) {
    const Philox4 bits = philox(1, uint64_t(Stream::synthetic), uint64_t(i));
    for (int64_t j = i; j < std::min(i + 4, set.images.size()); ++j) set.images.data<uint8_t>()[j] = uint8_t(bits.x[j - i]);
  }
  for (int64_t i = 0; i < n; ++i) set.labels.data<int64_t>()[i] = i * 7 % 10;
  set.classes = 10;
  set.mean.assign(size_t(image[2]), 0.5f), set.deviation.assign(size_t(image[2]), 0.25f);
  return set;
}

}  // namespace

StepBench::StepBench(const TrainOptions& o, comm::ProcessGroup* group) : options_(o), group_(group), device_(parse_device(o.device)) {
  const ModelEntry& entry = find_model(o.model);
  const ModelSpec spec{entry.image, 10, o.hidden, o.dropout, o.width, !o.no_stem_relu, o.stem_padding};
  manual_seed(uint64_t(o.seed));
  if (o.method.empty()) model_ = entry.make(spec);
  else model_ = make_method(o, spec);
  method_ = dynamic_cast<nn::Method*>(model_.get());
  nn::move_to(*model_, device_);
  if (group && o.sync_bn) nn::synchronize_batch_norm(*model_, group);
  if (method_) {
    method_->distribute(group, o.gather_distributed);
    method_->check_batch(o.batch_size);
  }
  step_ = std::make_unique<Step>(*model_, method_ ? loss_of(*method_, nullptr) : cross_entropy_of(*model_, nullptr, 0), o, group);
  loader_.emplace(make_loader());
  stays_ = next();
}

Loader StepBench::make_loader() const {
  const TrainOptions& o = options_;
  const Shape image = find_model(o.model).image;
  const Dataset images = noise(image, o.batch_size);
  LoaderConfig config{.batch_size = o.batch_size, .shuffle = true, .workers = int(o.workers), .device = device_,
                      .rank = group_ ? group_->rank() : 0, .ranks = group_ ? group_->size() : 1};
  if (!method_) {
    const bool colour = image[2] == 3;
    config.augmentation = {.pad = colour ? 4 : 0, .flip = colour};
    return Loader(images, all_samples(images), config);
  }
  std::vector<int64_t> samples;
  for (int64_t i = 0; i < kRepeats * images.size(); ++i) samples.push_back(i % images.size());
  config.views = views_of(o);
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
  if (method_)
    method_->begin_step({.step = step_->count(), .steps = step_->count() + 1, .epoch = epochs_ - 1, .seed = uint64_t(options_.seed)});
  step_->run(method_ ? batch.views : Tensors{batch.x}, batch.y, options_.lr, ended, {batch.whole});
}

double StepBench::run(int64_t steps) {
  synchronize(device_);
  if (group_) group_->barrier().wait();
  auto at = Clock::now();
  for (int64_t i = 0; i < steps; ++i) step(method_ ? next() : stays_);
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

// Of all ranks', so that they go on alike.
double StepBench::slowest(double seconds) const {
  if (!group_) return seconds;
  const Tensor most = from_host(std::vector<double>{seconds}, {1}, group_->transport().device());
  group_->all_reduce(most, ReduceOp::max).wait();
  return most.item();
}

}  // namespace ringtape::cli
