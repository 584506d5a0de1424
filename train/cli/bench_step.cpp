#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <utility>

#include "core/runtime.h"
#include "train/cli/common.h"
#include "train/cli/step_bench.h"
#include "train/io/json.h"
#include "train/loop/execution.h"
#include "train/loop/world.h"
#include "train/optim/lars.h"
#include "train/run/environment.h"

namespace ringtape::cli {
namespace {

std::string rate_text(double rate) { return rate < 100 ? fmt::format("{:.2f}", rate) : with_commas(int64_t(rate)); }

bool is_step_flag(const Flag& flag) {
  for (const char* name : {"model", "batch-size", "accumulate", "optimizer", "clip-grad-norm", "ema", "device",
                           "threads", "precision", "workers", "json", "strategy", "devices", "gpu-ids", "transport",
                           "sync-bn", "bucket-mb", "no-overlap", "no-graph"})
    if (flag.name == name) return true;
  return std::ranges::any_of(train_options(), [&](const Option& option) {
    const OptionGroup& group = option.group;
    const bool of_replicas = group.kind == std::string_view("strategy") && find_strategy(group.name).replicas;
    return option.name == flag.name && group.heading() == flag.group && group.in_step && !of_replicas;
  });
}

bool is_of_methods(const Flag& flag) { return find_option(flag.name)->group.learning == Learning::self_supervised; }

}  // namespace

TrainOptions bench_step_options(const Invocation& invocation, TrainOptions options) {
  options.trainer.batch_size = 16;
  options.step.optimizer.of("sgd").as<Sgd::Options>().momentum = 0;
  options.step.optimizer.of("lars").as<Lars::Options>().momentum = 0;
  // No kNN test takes place: this satisfies its check of the number of images.
  options.evaluation.knn.k = 1;
  if (invocation.flag("method")) options.model.name = "resnet18";
  apply_flags(options, invocation);
  for (const Option& option : train_options())
    RT_CHECK_AS(UsageError, options.self_supervised() || concerns(option.name, false) || !invocation.flag(option.name),
                "--", option.name, ": only for self-supervised methods; choose one with --method");
  RT_CHECK_AS(UsageError, !options.parallel.entry().replicas, "bench step: supports only one device per process, not ",
              options.parallel.strategy.name);
  return options;
}

std::vector<Flag> bench_step_flags(const char* model) {
  std::vector<Flag> flags;
  for (Flag& flag : option_flags(Use::either))
    if (is_step_flag(flag)) {
      if (flag.name == "batch-size") flag.fallback = "16";
      if (flag.name == "model") flag.fallback = model;
      if (!is_of_methods(flag) && flag.owner.empty()) flag.group = "Benchmark";
      flags.push_back(std::move(flag));
    }
  flags.push_back({"Benchmark", "pixels", "N", "height and width of the images", "the model's own"});
  std::stable_partition(flags.begin(), flags.end(), [](const Flag& flag) { return flag.group == "Benchmark"; });
  return flags;
}

namespace {

struct Measured {
  std::vector<double> rates;  // steps per second of each round, ascending
  int64_t steps = 0;          // per round
  double cpu_seconds = 0;     // of all threads of this process, per step
  StepBench::Phases phases;   // per step

  double median() const { return rates[rates.size() / 2]; }
};

Measured measure(StepBench& bench) {
  constexpr int kRounds = 5;
  constexpr double kRoundSeconds = 0.4;
  Measured out;
  bench.run(3);  // the first steps also allocate memory and load kernels; the third may be recorded
  int64_t trials = 1;
  double seconds = bench.run(trials);
  while (seconds < 0.02) seconds = bench.run(trials *= 4);
  out.steps = std::max(int64_t(kRoundSeconds * double(trials) / seconds), int64_t{1});
  reset_peak_memory(bench.device());
  const std::clock_t begin = std::clock();
  for (int round = 0; round < kRounds; ++round) out.rates.push_back(double(out.steps) / bench.run(out.steps));
  out.cpu_seconds = double(std::clock() - begin) / double(CLOCKS_PER_SEC) / double(kRounds * out.steps);
  std::sort(out.rates.begin(), out.rates.end());
  out.phases = bench.run_apart(out.steps);
  return out;
}

Json figures(const TrainOptions& options, const Measured& m, const StepBench& bench, int ranks) {
  Json out{{"model", options.model.name}};
  if (options.self_supervised()) out["method"] = options.method.name, out["workers"] = options.execution.workers;
  out.update({{"batch_size", options.trainer.batch_size},
              {"threads", options.execution.threads},
              {"device", options.execution.device},
              {"precision", options.execution.precision},
              {"optimizer", options.step.optimizer.name},
              {"images_per_s", m.median() * double(options.trainer.batch_size)},
              {"steps_per_s", m.median()},
              {"steps_per_s_min", m.rates.front()},
              {"steps_per_s_max", m.rates.back()},
              {"steps", m.steps * int64_t(m.rates.size())},
              {"cpu_s", m.cpu_seconds},
              {"peak_bytes", memory_stats(bench.device()).peak},
              {"state_bytes", bench.state_bytes()},
              {"phases",
               {{"data_s", m.phases.data},
                {"forward_s", m.phases.forward},
                {"backward_s", m.phases.backward},
                {"optimizer_s", m.phases.optimizer}}}});
  if (bench.device().type == DeviceType::cuda)
    out["gpu"] = runtime(bench.device()).describe(bench.device().index), out["libraries"] = cuda_libraries();
  const comm::Reducer* const reducer = bench.reducer();
  if (!reducer) return out;
  const comm::Reducer::Totals t = bench.traffic();
  out["ranks"] = ranks, out["comm_bytes"] = t.bytes / t.steps;
  for (const comm::Reducer::Trace& b : reducer->trace()) {  // of the last step, relative to the end of backward
    const auto after = [&](comm::Clock::time_point at) { return comm::Seconds(at - reducer->waited().begin).count(); };
    out["buckets"].push_back(
        {{"bytes", b.bytes}, {"ready_s", after(b.ready)}, {"begin_s", after(b.begin)}, {"end_s", after(b.end)}});
  }
  out["comm_s"] = t.communicating.count() / double(t.steps), out["exposed_s"] = t.exposed.count() / double(t.steps);
  return out;
}

void print_measured(const TrainOptions& options, const Measured& m, const StepBench& bench) {
  const std::string what =
      !options.self_supervised() ? options.model.name : options.method.name + " of " + options.model.name;
  const std::string precision = precision_text(options.execution);
  std::printf("%s, batch %s, %s, %s threads, %s, %s\n", what.c_str(), with_commas(options.trainer.batch_size).c_str(),
              options.execution.device.c_str(), with_commas(options.execution.threads).c_str(),
              precision.empty() ? options.execution.precision.c_str() : precision.c_str(),
              options.step.optimizer.name.c_str());
  std::printf("%s steps/s (median of %zu rounds; %s to %s), %s images/s\n", rate_text(m.median()).c_str(),
              m.rates.size(), rate_text(m.rates.front()).c_str(), rate_text(m.rates.back()).c_str(),
              with_commas(int64_t(m.median() * double(options.trainer.batch_size))).c_str());
  std::printf("per step: data %.1f us, forward %.1f us, backward %.1f us, optimizer %.1f us; peak %s bytes\n",
              1e6 * m.phases.data, 1e6 * m.phases.forward, 1e6 * m.phases.backward, 1e6 * m.phases.optimizer,
              with_commas(memory_stats(bench.device()).peak).c_str());
  if (const std::string note = precision_note(options.execution); !note.empty()) std::printf("%s\n", note.c_str());
  if (bench.device().type != DeviceType::cuda) return;
  std::printf("on %s, %s\n", runtime(bench.device()).describe(bench.device().index).c_str(), cuda_versions().c_str());
}

int run_bench_step(const Invocation& invocation) {
  TrainOptions options = bench_step_options(invocation);
  if (wants_ranks(options.parallel)) {
    (void)resolve(options, int(options.parallel.devices));  // reports errors once, before the ranks start
    return run_as_processes(int(options.parallel.devices),
                            {invocation.command_line.begin() + 1, invocation.command_line.end()});
  }
  World world = join_world(options.parallel, options.execution);
  options = resolve(options, world.size());
  set_threads(int(options.execution.threads));
  StepBench bench(options, number_flag<int64_t>(invocation, "pixels", 1, 4096, 0), world.group());
  const Measured measured = measure(bench);
  if (!world.leads()) return 0;
  if (options.run.json) std::printf("%s\n", figures(options, measured, bench, world.size()).text().c_str());
  else print_measured(options, measured, bench);
  return 0;
}

}  // namespace

Command bench_step_command() {
  Command command;
  command.name = "bench step";
  command.summary =
      "Measures training steps per second on random images, supervised or with the views of a self-supervised method.";
  command.usage = "[FLAGS]";
  command.meets = true;
  command.examples = {
      "bench step --model mlp --batch-size 16 --threads 1", "bench step --model resnet18 --batch-size 128 --json",
      "bench step --model resnet50 --pixels 224 --batch-size 8", "bench step --method simclr --batch-size 128"};
  command.flags = bench_step_flags("mlp, with --method resnet18");
  command.run = run_bench_step;
  return command;
}

}  // namespace ringtape::cli
