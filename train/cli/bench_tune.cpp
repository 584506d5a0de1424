#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <utility>

#include "autograd/autocast.h"
#include "autograd/create.h"
#include "core/env.h"
#include "core/runtime.h"
#include "kernels/arithmetic.h"
#include "kernels/conv_norm.h"
#include "nn/resnet.h"
#include "train/cli/common.h"
#include "train/cli/step_bench.h"
#include "train/io/json.h"
#include "train/run/environment.h"

namespace ringtape::cli {
namespace {

// A block with random numbers, forward and backward.
class Trial {
 public:
  explicit Trial(const BlockShape& shape) : shape_(shape) {
    manual_seed(1);
    block_ = std::make_unique<nn::BasicBlock>(shape.w[3], shape.w[0], shape.stride);
    nn::move_to(*block_, shape.device);
    x_ = leaf(to(cast(randn(shape.x), shape.dtype), shape.device));
    parameters_ = nn::named_parameters(*block_);
  }

  // Output and gradients.
  std::vector<Tensor> run() {
    zero_grad(x_);
    for (const nn::Named& p : parameters_) zero_grad(*p.tensor);
    Tensor y;
    {
      const Autocast halves(shape_.dtype);
      y = (*block_)(x_);
    }
    if (!dy_.defined()) dy_ = to(cast(randn(y.shape()), y.dtype()), shape_.device);
    backward(y, dy_);
    std::vector<Tensor> out = {y, grad(x_)};
    for (const nn::Named& p : parameters_) out.push_back(grad(*p.tensor));
    return out;
  }

  // run() as part of a training step: a graph.
  std::shared_ptr<RecordedWork> record() {
    return runtime(shape_.device).record([this] { run(); }, shape_.device.index);
  }

  // Of one launch.
  double seconds(RecordedWork& work, int launches) {
    synchronize(shape_.device);
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < launches; ++i) work.launch();
    synchronize(shape_.device);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() / launches;
  }

 private:
  BlockShape shape_;
  std::unique_ptr<nn::BasicBlock> block_;
  Tensor x_, dy_;
  std::vector<nn::Named> parameters_;
};

double norm_of(const Tensor& x) { return std::sqrt(sum(square(cast(x, DType::f32))).item()); }

// The largest of norm(a - b) / norm(b).
double difference(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  double out = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double of_one = norm_of(cast(a[i], DType::f32) - cast(b[i], DType::f32)) / std::max(norm_of(b[i]), 1e-30);
    if (std::isnan(of_one)) return INFINITY;
    out = std::max(out, of_one);
  }
  return out;
}

struct Tuned {
  BlockShape block;
  std::vector<double> seconds;  // by BlockKernels, those that there are
  double difference = 0;        // the largest of others from those one by one
  bool right = false;
  BlockKernels used = BlockKernels::one_by_one;
};

// Sums in another order move a few roundings, and with them ReLUs of numbers near 0.
constexpr double kMaxDifference = 0.02;

constexpr Fusing kWays[] = {Fusing::never, Fusing::always, Fusing::with_wgmma};  // by BlockKernels

Tuned tune(const BlockShape& block) {
  constexpr int kRounds = 5;
  constexpr double kRoundSeconds = 0.02, kEnough = 1;  // seconds
  const size_t ways = has_wgmma(block) ? 3 : 2;
  Trial trial(block);
  std::vector<std::vector<Tensor>> results(ways);
  std::vector<std::shared_ptr<RecordedWork>> works(ways);
  std::vector<std::vector<double>> seconds(ways);
  double total = 0;
  const auto measure = [&](size_t way, int launches) {
    seconds[way].push_back(trial.seconds(*works[way], launches));
    total += seconds[way].back() * launches;
  };
  Tuned out{block, {}};
  for (size_t way = 0; way < ways; ++way) {
    const ArithmeticScope scope(&Arithmetic::fusing, kWays[way]);
    results[way] = trial.run();
    works[way] = trial.record();
    measure(way, 1);
    out.difference = std::max(out.difference, difference(results[way], results[0]));
  }
  out.right = out.difference <= kMaxDifference;
  for (int round = 0; out.right && round < kRounds && total < kEnough; ++round)
    for (size_t way = 0; way < ways; ++way) measure(way, int(std::clamp(kRoundSeconds / seconds[way][0], 1.0, 1000.0)));
  for (std::vector<double>& each : seconds) {
    std::sort(each.begin(), each.end());
    out.seconds.push_back(each[each.size() / 2]);
  }
  if (out.right) out.used = BlockKernels(std::ranges::min_element(out.seconds) - out.seconds.begin());
  keep_block_kernels(block, out.used);
  return out;
}

Json json_of(const Tuned& t) {
  constexpr const char* names[] = {"one_by_one_us", "fused_us", "wgmma_us"};
  Json out{{"x", t.block.x.str()},       {"w", t.block.w.str()}, {"stride", t.block.stride},
           {"difference", t.difference}, {"right", t.right},     {"used", name_of(t.used)}};
  for (size_t i = 0; t.right && i < t.seconds.size(); ++i) out[names[i]] = 1e6 * t.seconds[i];
  return out;
}

std::string line_of(const Tuned& t) {
  std::string out = fmt::format("{:<22} {:<18} {:>6}", t.block.x.str(), t.block.w.str(), t.block.stride);
  for (size_t i = 0; i < std::size(kWays); ++i)
    out += t.right && i < t.seconds.size() ? fmt::format(" {:>10.1f}", 1e6 * t.seconds[i])
                                           : fmt::format(" {:>10}", t.right ? "" : "wrong");
  return out + fmt::format(" {:>10.4f}  {}", t.difference, name_of(t.used));
}

const std::string_view kFlags[] = {"model", "batch-size", "device", "precision", "pixels", "json"};

int run_bench_tune(const Invocation& invocation) {
  RT_CHECK_AS(UsageError, env::conv_plans() != "off",
              "bench tune: RINGTAPE_CONV_PLANS=off leaves no file for what it finds; unset it, or name one");
  RT_CHECK_AS(UsageError, env::fused_conv() < 0, "bench tune: RINGTAPE_FUSED_CONV=", env::fused_conv(),
              " decides for all blocks, whatever it finds; unset it");
  TrainOptions defaults;
  defaults.model.name = "resnet18", defaults.execution.device = "cuda", defaults.execution.precision = "bf16";
  const TrainOptions options = resolve(bench_step_options(invocation, std::move(defaults)));
  AskedBlocks asked;
  StepBench bench(options, number_flag<int64_t>(invocation, "pixels", 1, 4096, 0), comm::alone());
  bench.run(1);
  RT_CHECK_AS(UsageError, !asked.blocks.empty(), "bench tune: expected residual blocks that a GPU can fuse, but ",
              options.model.name, " on ", options.execution.device, " in ", options.execution.precision,
              " has none; it takes basic blocks of multiples of ", kFusedChannels,
              " channels, --precision bf16, f16 or tf32, and a GPU of compute capability 8.0 or later");
  const std::vector<BlockShape> blocks = asked.blocks;
  if (!options.run.json)
    std::printf("on %s, %s, %s\n%-22s %-18s %6s %10s %10s %10s %10s  %s\n",
                runtime(bench.device()).describe(bench.device().index).c_str(), cuda_versions().c_str(),
                options.execution.precision.c_str(), "images", "first weights", "stride", "apart us", "fused us",
                "wgmma us", "difference", "used");
  Json all = Json::list();
  bool right = true;
  for (const BlockShape& block : blocks) {
    const Tuned tuned = tune(block);
    right = right && tuned.right;
    if (options.run.json) all.push_back(json_of(tuned));
    else std::printf("%s\n", line_of(tuned).c_str()), std::fflush(stdout);
  }
  if (options.run.json) std::printf("%s\n", all.text().c_str());
  RT_CHECK(right, "bench tune: fused blocks differ by more than ", kMaxDifference,
           " from those of calls one by one, and are not used; please report this with the table");
  return 0;
}

}  // namespace

Command bench_tune_command() {
  Command command;
  command.name = "bench tune";
  command.summary =
      "Measures on a GPU which residual blocks of a model are faster with convolutions fused with BatchNorm, first "
      "checks their results, and keeps the choice for later trainings with these sizes.";
  command.usage = "[FLAGS]";
  command.examples = {"bench tune --batch-size 128 --precision bf16",
                      "bench tune --model resnet34 --batch-size 512 --precision bf16 --json"};
  for (Flag& flag : bench_step_flags("resnet18")) {
    const bool taken = flag.kind == "model" || std::ranges::count(kFlags, flag.name);
    if (!taken) continue;
    if (flag.name == "device") flag.fallback = "cuda";
    if (flag.name == "precision") flag.fallback = "bf16";
    command.flags.push_back(std::move(flag));
  }
  command.run = run_bench_tune;
  return command;
}

}  // namespace ringtape::cli
