#include <algorithm>
#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>

#include "autograd/create.h"
#include "core/runtime.h"
#include "train/cli/common.h"
#include "train/models.h"
#include "train/trainer.h"

namespace ringtape::cli {
namespace {

using Clock = std::chrono::steady_clock;

double since(Clock::time_point& at) {
  const auto now = Clock::now();
  return std::chrono::duration<double>(now - std::exchange(at, now)).count();
}

struct Phases {
  double forward = 0, backward = 0, optimizer = 0;
};

// Training steps on one batch that stays: what the network costs, without the loader.
class StepBench {
 public:
  explicit StepBench(const TrainOptions& o) : options_(o), device_(parse_device(o.device)) {
    manual_seed(uint64_t(o.seed));
    model_ = find_model(o.model).make({{28, 28, 1}, 10, o.hidden, o.dropout});
    nn::move_to(*model_, device_);
    step_ = std::make_unique<Step>(*model_, o);
    x_ = randn({o.batch_size, 28, 28, 1}, 0, 1, DType::f32, device_);
    std::vector<int64_t> labels(size_t(o.batch_size));
    for (size_t i = 0; i < labels.size(); ++i) labels[i] = int64_t(i * 7 % 10);
    y_ = from_host(labels, {o.batch_size}, device_);
  }

  // Seconds that `steps` steps took, from a moment when the device was idle until it is idle again.
  double run(int64_t steps) {
    synchronize(device_);
    auto at = Clock::now();
    for (int64_t i = 0; i < steps; ++i) step_->run(x_, y_, options_.lr);
    synchronize(device_);
    return since(at);
  }

  // Seconds of the parts of a step. Each is waited for: on a GPU, where the host is otherwise ahead, they add up to more than
  // a step.
  Phases run_apart(int64_t steps) {
    Phases phases;
    double* const parts[] = {&phases.forward, &phases.backward, &phases.optimizer};
    synchronize(device_);
    auto at = Clock::now();
    const auto ended = [&](Phase phase) {
      synchronize(device_);
      *parts[int(phase)] += since(at) / double(steps);
    };
    for (int64_t i = 0; i < steps; ++i) step_->run(x_, y_, options_.lr, ended);
    return phases;
  }
  Device device() const { return device_; }

 private:
  TrainOptions options_;
  Device device_;
  std::unique_ptr<nn::Module> model_;
  std::unique_ptr<Step> step_;
  Tensor x_, y_;
};

bool takes(const std::string& name) {
  for (const char* flag :
       {"model", "hidden", "dropout", "batch-size", "accumulate", "optimizer", "clip-grad-norm", "ema", "device", "threads", "precision", "json"})
    if (name == flag) return true;
  return false;
}

int run(const Invocation& invocation) {
  constexpr int kRounds = 5;
  TrainOptions options;
  options.batch_size = 16;
  options.momentum = 0;
  apply_flags(options, invocation);
  options = resolve(options);
  set_threads(int(options.threads));
  StepBench bench(options);
  bench.run(3);  // the first steps also get memory and load kernels
  const double trial = bench.run(20);
  const auto steps = std::clamp<int64_t>(int64_t(0.4 / (trial / 20)), 1, 1'000'000);
  reset_peak_memory(bench.device());
  std::vector<double> rates;
  for (int round = 0; round < kRounds; ++round) rates.push_back(double(steps) / bench.run(steps));
  const Phases phases = bench.run_apart(steps);
  std::sort(rates.begin(), rates.end());
  const double median = rates[kRounds / 2];
  const nlohmann::ordered_json out{{"model", options.model},
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
                                    {{"forward_s", phases.forward},
                                     {"backward_s", phases.backward},
                                     {"optimizer_s", phases.optimizer}}}};
  if (options.json) {
    std::printf("%s\n", out.dump().c_str());
    return 0;
  }
  std::printf("%s, batch %s, %s, %s threads, %s, %s\n", options.model.c_str(),
              with_commas(options.batch_size).c_str(), options.device.c_str(),
              with_commas(options.threads).c_str(), options.precision.c_str(), options.optimizer.c_str());
  std::printf("%s steps/s (median of %d rounds; %s to %s), %s images/s\n",
              with_commas(int64_t(median)).c_str(), kRounds, with_commas(int64_t(rates.front())).c_str(),
              with_commas(int64_t(rates.back())).c_str(),
              with_commas(int64_t(median * double(options.batch_size))).c_str());
  std::printf("a step: forward %.1f us, backward %.1f us, optimizer %.1f us; peak %s bytes\n",
              1e6 * phases.forward, 1e6 * phases.backward, 1e6 * phases.optimizer,
              with_commas(memory_stats(bench.device()).peak).c_str());
  return 0;
}

}  // namespace

Command bench_step_command() {
  Command command;
  command.name = "bench step";
  command.summary =
      "Measures training steps a second: forward, backward and update on one batch of 28x28 images.";
  command.usage = "[FLAGS]";
  command.examples = {"bench step --model mlp --batch-size 16 --threads 1",
                      "bench step --batch-size 128 --json"};
  for (Flag& flag : option_flags(false))
    if (takes(flag.name)) {
      if (flag.name == "batch-size") flag.fallback = "16";
      flag.group = "Benchmark";
      command.flags.push_back(std::move(flag));
    }
  command.run = run;
  return command;
}

}  // namespace ringtape::cli
