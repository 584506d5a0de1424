#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <vector>

#include "autograd/create.h"
#include "core/devices.h"
#include "train/cli/common.h"
#include "train/cli/predictor_of.h"
#include "train/io/json.h"

namespace ringtape::cli {
namespace {

// The seconds of each call of f, ascending, for about `seconds` and at least 10 calls. The first ones are left out:
// they allocate.
template <class F> std::vector<double> times_of(double seconds, F&& f) {
  using Clock = std::chrono::steady_clock;
  constexpr int kFirst = 3, kLeast = 10;
  for (int i = 0; i < kFirst; ++i) f();
  std::vector<double> out;
  for (double sum = 0; sum < seconds || std::ssize(out) < kLeast; sum += out.back()) {
    const Clock::time_point began = Clock::now();
    f();
    out.push_back(std::chrono::duration<double>(Clock::now() - began).count());
  }
  std::ranges::sort(out);
  return out;
}

int run_bench_inference(const Invocation& invocation) {
  RT_CHECK_AS(UsageError, invocation.positionals.size() == 1,
              "bench inference: name a run, a checkpoint or a file of weights: ringtape bench inference "
              "RUN|CHECKPOINT|FILE");
  const auto batch = number_flag<int64_t>(invocation, "batch-size", 1, 65536, 1);
  const Predictor predictor = predictor_of(invocation);
  const Shape image = predictor.image_shape();
  const Tensor images = randn({batch, image[0], image[1], image[2]});
  reset_peak_memory(Device{});
  const std::vector<double> times = times_of(3, [&] { (void)predictor.logits(images); });
  const auto quantile = [&](double q) { return times[size_t(q * double(times.size() - 1))]; };
  const double half = quantile(0.5), most = quantile(0.99), rate = double(batch) / half;
  const auto peak = int64_t(memory_stats(Device{}).peak);
  if (invocation.has("json"))
    std::printf("%s\n", Json{{"model", predictor.model_name()},
                             {"image", {image[0], image[1], image[2]}},
                             {"batch_size", batch},
                             {"threads", threads()},
                             {"calls", times.size()},
                             {"p50_s", half},
                             {"p99_s", most},
                             {"images_per_s", rate},
                             {"peak_bytes", peak}}
                            .text()
                            .c_str());
  else
    std::printf("%s", fmt::format("{}, {} images {} at once, {} threads: half of {} calls within {:.3f} ms, 99 of 100 "
                                  "within {:.3f} ms; {:.1f} images/s; {:.1f} MB\n",
                                  predictor.model_name(), batch, image.str(), threads(), times.size(), 1e3 * half,
                                  1e3 * most, rate, double(peak) / 1e6)
                          .c_str());
  return 0;
}

}  // namespace

Command bench_inference_command() {
  Command command;
  command.name = "bench inference";
  command.summary = "Measures how long a trained network takes for images.";
  command.usage = "RUN|CHECKPOINT|FILE [FLAGS]";
  command.examples = {"bench inference digits --threads 1", "bench inference model.safetensors --batch-size 64 --json"};
  command.positionals = 1;
  command.flags = {{"Benchmark", "batch-size", "N", "images at once", "1"},
                   {"Benchmark", "json", "", "print a line of JSON", ""}};
  for (Flag& flag : predictor_flags()) command.flags.push_back(std::move(flag));
  command.run = run_bench_inference;
  return command;
}

}  // namespace ringtape::cli
