#include "train/trainer.h"

#include <chrono>
#include <cmath>
#include <utility>

#include "autograd/create.h"
#include "train/metrics.h"
#include "train/models.h"
#include "train/run/progress.h"

namespace ringtape {
namespace {

constexpr int64_t kEvalBatch = 500;  // images

// Seconds since it was made, or since the last lap().
class Stopwatch {
 public:
  double lap() {
    const auto now = Clock::now();
    return std::chrono::duration<double>(now - std::exchange(at_, now)).count();
  }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point at_ = Clock::now();
};

// A mode for as long as it lives; then the one there was.
class ModeGuard {
 public:
  ModeGuard(nn::Module& model, bool training) : model_(model), was_(model.training()) {
    model.train(training);
  }
  ~ModeGuard() { model_.train(was_); }
  ModeGuard(const ModeGuard&) = delete;
  ModeGuard& operator=(const ModeGuard&) = delete;

 private:
  nn::Module& model_;
  bool was_;
};

int64_t limited(int64_t n, int64_t limit) { return limit > 0 ? std::min(n, limit) : n; }

Metrics figures(const Tally& tally, const std::string& split, double seconds, Device device) {
  Metrics m;
  m.split = split;
  m.loss = tally.loss(), m.top1 = tally.top1(), m.top5 = tally.top5();
  m.images = tally.samples();
  m.seconds = seconds;
  m.images_per_s = seconds > 0 ? double(tally.samples()) / seconds : 0;
  m.peak_bytes = double(memory_stats(device).peak);
  return m;
}

}  // namespace

Task::Task(const TrainOptions& wanted) : options(resolve(wanted)), device(parse_device(options.device)) {
  set_threads(int(options.threads));
  const DatasetEntry& entry = find_dataset(options.data);
  data = entry.load({options.data_dir, options.train_size, options.test_size, uint64_t(options.seed), options.image_size});
  keep_on_device(data, device);
  if (options.val_size < 0) options.val_size = default_val_size(entry, data.train.size());
  manual_seed(uint64_t(options.seed));
  model =
      find_model(options.model)
          .make({data.train.images.shape().without(0), data.train.classes, options.hidden, options.dropout});
  if (device != Device{}) nn::move_to(*model, device);
}

Metrics evaluate(const Task& task, const Dataset& data, const std::vector<int64_t>& samples,
                 const std::string& split, bool progress) {
  const NoGrad no_grad;
  const ModeGuard mode(*task.model, false);
  const int64_t batch_size = std::min(kEvalBatch, int64_t(samples.size()));
  const Loader loader(
      data, samples, {.batch_size = batch_size, .workers = int(task.options.workers), .device = task.device});
  const int64_t batches = limited(loader.batches(), task.options.limit_eval_batches);
  Stopwatch watch;
  Tally tally;
  Progress bar(split, batches, progress);
  Loader::Epoch epoch = loader.epoch(0);
  for (int64_t i = 0; i < batches; ++i) {
    const Batch* batch = epoch.next();
    const Tensor logits = (*task.model)(batch->x);
    tally.add(cross_entropy(logits, batch->y), logits, batch->y);
    bar.update(i + 1);
  }
  tally.finish();
  return figures(tally, split, watch.lap(), task.device);
}

Trainer::Trainer(Task& task) : task_(task) {
  const TrainOptions& o = task.options;
  split_ = holdout(task.data.train.size(), o.val_size, uint64_t(o.seed));
  loader_ = std::make_unique<Loader>(task.data.train, split_.train,
                                     LoaderConfig{.batch_size = o.batch_size,
                                                  .shuffle = true,
                                                  .seed = uint64_t(o.seed),
                                                  .workers = int(o.workers),
                                                  .device = task.device,
                                                  .augmentation = {o.crop_padding, o.flip, o.rotation, o.cutout}});
  parameters_ = std::make_unique<FlatParameters>(*task.model);
  optimizer_ = make_optimizer(o, *parameters_);
  schedule_.kind = parse_schedule(o.schedule);
  schedule_.lr = o.lr;
  schedule_.steps_per_epoch = limited(loader_->batches(), o.limit_train_batches);
  schedule_.epochs = o.epochs;
  schedule_.warmup_epochs = o.warmup_epochs;
  schedule_.step_size = o.step_size;
  schedule_.gamma = o.gamma;
}

Metrics Trainer::train_epoch(int64_t epoch, bool progress) {
  nn::Module& model = *task_.model;
  const double smoothing = task_.options.label_smoothing;
  const ModeGuard mode(model, true);
  Stopwatch whole, watch;
  double data_s = 0, forward_s = 0, backward_s = 0, optimizer_s = 0, lr = 0;
  Tally tally;
  Progress bar(concat("epoch ", epoch + 1, "/", task_.options.epochs), steps_per_epoch(), progress);
  Loader::Epoch batches = loader_->epoch(epoch);
  for (int64_t i = 0; i < steps_per_epoch(); ++i) {
    watch.lap();
    const Batch* batch = batches.next();
    data_s += watch.lap();
    const Tensor logits = model(batch->x);
    const Tensor loss = cross_entropy(logits, batch->y, smoothing);
    forward_s += watch.lap();
    optimizer_->zero_grad();
    backward(loss);
    backward_s += watch.lap();
    lr = schedule_.at(optimizer_->steps());
    optimizer_->step(lr);
    optimizer_s += watch.lap();
    tally.add(loss, logits, batch->y);
    if (!std::isfinite(tally.last_loss())) break;
    if (bar.due()) bar.update(i + 1, concat("loss ", std::round(1e4 * tally.loss()) / 1e4));
  }
  tally.finish();
  Metrics m = figures(tally, "train", whole.lap(), task_.device);
  m.lr = lr;
  m.data_s = data_s, m.forward_s = forward_s, m.backward_s = backward_s, m.optimizer_s = optimizer_s;
  return m;
}

void Trainer::fit(const std::function<void(const Metrics&)>& report, bool progress) {
  reset_peak_memory(task_.device);
  const auto emit = [&](Metrics m, int64_t epoch) {
    m.epoch = epoch;
    m.step = steps();
    report(m);
    RT_CHECK_AS(Error, std::isfinite(*m.loss), "the ", m.split, " loss became ", *m.loss, " by step ", m.step,
                " (epoch ", epoch, ", learning rate ", schedule_.at(m.step),
                "); lower --lr, or find the operation with RINGTAPE_NAN=1");
  };
  const int64_t epochs = task_.options.epochs;
  for (int64_t epoch = 0; epoch < epochs; ++epoch) {
    emit(train_epoch(epoch, progress), epoch + 1);
    if (!split_.val.empty()) emit(evaluate(task_, task_.data.train, split_.val, "val", progress), epoch + 1);
  }
  emit(evaluate(task_, task_.data.test, all_samples(task_.data.test), "test", progress), epochs);
}

}  // namespace ringtape
