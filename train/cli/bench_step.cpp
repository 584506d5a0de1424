#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "autograd/create.h"
#include "core/random.h"
#include "core/runtime.h"
#include "train/cli/common.h"
#include "nn/batch_norm.h"
#include "train/models.h"
#include "train/trainer.h"
#include "train/world.h"

namespace ringtape::cli {
namespace {

using Clock = std::chrono::steady_clock;

double since(Clock::time_point& at) {
  const auto now = Clock::now();
  return std::chrono::duration<double>(now - std::exchange(at, now)).count();
}

struct Phases {
  double data = 0, forward = 0, backward = 0, optimizer = 0;
};

// Random images, enough for a few batches.
Dataset noise(const Shape& image, int64_t batch_size) {
  Dataset set;
  const int64_t n = 4 * batch_size;
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

// Training steps: what the network costs is measured on one batch that stays, what the loader adds with batches of its own.
class StepBench {
 public:
  StepBench(const TrainOptions& o, comm::ProcessGroup* group) : options_(o), group_(group), device_(parse_device(o.device)) {
    const ModelEntry& entry = find_model(o.model);
    manual_seed(uint64_t(o.seed));
    model_ = entry.make({entry.image, 10, o.hidden, o.dropout});
    nn::move_to(*model_, device_);
    if (group && o.sync_bn) nn::synchronize_batch_norm(*model_, group);
    step_ = std::make_unique<Step>(*model_, o, group);
    const Dataset images = noise(entry.image, o.batch_size);
    const bool colour = entry.image[2] == 3;
    loader_ = std::make_unique<Loader>(images, all_samples(images),
                                       LoaderConfig{.batch_size = o.batch_size, .shuffle = true, .workers = int(o.workers), .device = device_,
                                                    .augmentation = {.pad = colour ? 4 : 0, .flip = colour},
                                                    .rank = group ? group->rank() : 0, .ranks = group ? group->size() : 1});
    Loader::Epoch epoch = loader_->epoch(0);
    const Batch* batch = epoch.next();
    x_ = batch->x, y_ = batch->y;
  }

  // Seconds that `steps` steps took, from a moment when the device was idle until it is idle again.
  double run(int64_t steps) {
    synchronize(device_);
    if (group_) group_->barrier().wait();
    auto at = Clock::now();
    for (int64_t i = 0; i < steps; ++i) step_->run(x_, y_, options_.lr, {}, {options_.batch_size});
    synchronize(device_);
    return slowest(since(at));
  }

  // Seconds of the parts of a step, batches coming from the loader. Each is waited for: on a GPU, where the host is otherwise
  // ahead, they add up to more than a step.
  Phases run_apart(int64_t steps) {
    Phases phases;
    double* const parts[] = {&phases.forward, &phases.backward, &phases.optimizer};
    synchronize(device_);
    auto at = Clock::now();
    const auto ended = [&](Phase phase) {
      synchronize(device_);
      *parts[int(phase)] += since(at) / double(steps);
    };
    std::optional<Loader::Epoch> epoch;
    for (int64_t i = 0; i < steps; ++i) {
      if (i % loader_->batches() == 0) epoch.emplace(loader_->epoch(i / loader_->batches()));
      const Batch* batch = epoch->next();
      synchronize(device_);
      phases.data += since(at) / double(steps);
      step_->run(batch->x, batch->y, options_.lr, ended, {batch->whole});
    }
    return phases;
  }
  Device device() const { return device_; }
  const comm::Reducer* reducer() const { return step_->reducer(); }

 private:
  // Of all ranks', so that they go on alike.
  double slowest(double seconds) const {
    if (!group_) return seconds;
    const Tensor most = from_host(std::vector<double>{seconds}, {1}, group_->transport().device());
    group_->all_reduce(most, ReduceOp::max).wait();
    return most.item();
  }

  TrainOptions options_;
  comm::ProcessGroup* group_;  // null: alone
  Device device_;
  std::unique_ptr<nn::Module> model_;
  std::unique_ptr<Step> step_;
  std::unique_ptr<Loader> loader_;
  Tensor x_, y_;
};

std::string rate_text(double rate) { return rate < 100 ? fmt::format("{:.2f}", rate) : with_commas(int64_t(rate)); }

bool takes(const std::string& name) {
  for (const char* flag :
       {"model", "hidden", "dropout", "batch-size", "accumulate", "optimizer", "clip-grad-norm", "ema", "device", "threads", "precision", "momentum", "nesterov", "weight-decay", "workers", "json", "strategy", "devices", "gpu-ids", "transport", "sync-bn", "bucket-mb", "no-overlap"})
    if (name == flag) return true;
  return false;
}

int run(const Invocation& invocation) {
  constexpr int kRounds = 5;
  constexpr double kRoundSeconds = 0.4;
  TrainOptions options;
  options.batch_size = 16;
  options.momentum = 0;
  apply_flags(options, invocation);
  RT_CHECK_AS(UsageError, options.strategy != "dp" && options.strategy != "ddp2", "bench step: measures single and ddp, not ", options.strategy);
  if (wants_ranks(options)) return run_as_processes(int(options.devices), {invocation.command_line.begin() + 1, invocation.command_line.end()});
  World world = join_world(options);
  options = resolve(options, world.size());
  set_threads(int(options.threads));
  StepBench bench(options, world.group.get());
  bench.run(2);  // the first steps also get memory and load kernels
  int64_t trials = 1;
  double seconds = bench.run(trials);
  while (seconds < 0.02) seconds = bench.run(trials *= 4);
  const auto steps = std::max(int64_t(kRoundSeconds * double(trials) / seconds), int64_t{1});
  reset_peak_memory(bench.device());
  std::vector<double> rates;
  for (int round = 0; round < kRounds; ++round) rates.push_back(double(steps) / bench.run(steps));
  const Phases phases = bench.run_apart(steps);
  std::sort(rates.begin(), rates.end());
  const double median = rates[kRounds / 2];
  if (!world.leads()) return 0;
  nlohmann::ordered_json out{{"model", options.model},
                                   {"batch_size", options.batch_size},
                                   {"threads", options.threads},
                                   {"device", options.device},
                                   {"precision", options.precision},
                                   {"optimizer", options.optimizer},
                                   {"images_per_s", median * double(options.batch_size)},
                                   {"steps_per_s", median},
                                   {"steps_per_s_min", rates.front()},
                                   {"steps_per_s_max", rates.back()},
                                   {"steps", steps * kRounds},
                                   {"peak_bytes", memory_stats(bench.device()).peak},
                                   {"phases",
                                    {{"data_s", phases.data},
                                     {"forward_s", phases.forward},
                                     {"backward_s", phases.backward},
                                     {"optimizer_s", phases.optimizer}}}};
  if (const comm::Reducer* reducer = bench.reducer()) {
    const comm::Reducer::Totals& t = reducer->totals();
    out["ranks"] = world.size(), out["comm_bytes"] = t.bytes / t.steps;
    for (const comm::Reducer::Trace& b : reducer->trace()) {  // of the last step, from the end of backward
      const auto after = [&](comm::Clock::time_point at) { return comm::Seconds(at - reducer->waited().begin).count(); };
      out["buckets"].push_back({{"bytes", b.bytes}, {"ready_s", after(b.ready)}, {"begin_s", after(b.begin)}, {"end_s", after(b.end)}});
    }
    out["comm_s"] = t.communicating.count() / double(t.steps), out["exposed_s"] = t.exposed.count() / double(t.steps);
  }
  if (options.json) {
    std::printf("%s\n", out.dump().c_str());
    return 0;
  }
  std::printf("%s, batch %s, %s, %s threads, %s, %s\n", options.model.c_str(),
              with_commas(options.batch_size).c_str(), options.device.c_str(),
              with_commas(options.threads).c_str(), options.precision.c_str(), options.optimizer.c_str());
  std::printf("%s steps/s (median of %d rounds; %s to %s), %s images/s\n", rate_text(median).c_str(), kRounds,
              rate_text(rates.front()).c_str(), rate_text(rates.back()).c_str(),
              with_commas(int64_t(median * double(options.batch_size))).c_str());
  std::printf("a step: data %.1f us, forward %.1f us, backward %.1f us, optimizer %.1f us; peak %s bytes\n",
              1e6 * phases.data, 1e6 * phases.forward, 1e6 * phases.backward, 1e6 * phases.optimizer,
              with_commas(memory_stats(bench.device()).peak).c_str());
  return 0;
}

}  // namespace

Command bench_step_command() {
  Command command;
  command.name = "bench step";
  command.summary =
      "Measures training steps a second: forward, backward and update on a batch of random images.";
  command.usage = "[FLAGS]";
  command.meets = true;
  command.examples = {"bench step --model mlp --batch-size 16 --threads 1",
                      "bench step --model resnet18 --batch-size 128 --json"};
  for (Flag& flag : option_flags(Use::train))
    if (takes(flag.name)) {
      if (flag.name == "batch-size") flag.fallback = "16";
      flag.group = "Benchmark";
      command.flags.push_back(std::move(flag));
    }
  command.run = run;
  return command;
}

}  // namespace ringtape::cli
