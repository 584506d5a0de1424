#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "autograd/create.h"
#include "nn/data_parallel.h"
#include "train/cli/compare.h"
#include "train/io/json.h"
#include "train/loop/world.h"
#include "train/model/models.h"

namespace ringtape::cli {
namespace {

using nn::DataParallel;

constexpr int kRounds = 7;
constexpr double kRoundSeconds = 0.05;

// Seconds per call, over several calls if one is short.
double seconds_of(const std::function<void()>& pass, Device device) {
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  for (int passes = 1;; ++passes) {
    pass();
    synchronize(device);
    const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    if (seconds >= kRoundSeconds) return seconds / passes;
  }
}

double median(std::vector<double> all) {
  std::sort(all.begin(), all.end());
  return all[all.size() / 2];
}

// A model on one device, and on several devices with replicas that are created for each pass or persist.
class Inference {
 public:
  explicit Inference(const TrainOptions& o) : options_(o) {
    const ModelEntry& entry = find_model(o.model.name);
    const ModelSpec spec{entry.image, 10, o.model.chosen()};
    model_ = entry.make(spec);
    const Device device = parse_device(o.execution.device);
    if (device != Device{}) nn::move_to(*model_, device);
    model_->train(false);
    const auto make = [&entry, spec] { return entry.make(spec); };
    const comm::Devices devices = devices_of(o.parallel, device.type);
    anew_ = std::make_unique<DataParallel>(*model_, make, devices, DataParallel::Options{});
    staying_ = std::make_unique<DataParallel>(*model_, make, devices, DataParallel::Options{.persistent = true});
  }

  const comm::Devices& devices() const { return anew_->devices(); }
  size_t tensors() const { return nn::named_parameters(*model_).size() + nn::named_buffers(*model_).size(); }

  Json measure(int64_t batch) {
    const NoGrad no_grad;
    const ModelEntry& entry = find_model(options_.model.name);
    const Tensor x = randn({batch, entry.image[0], entry.image[1], entry.image[2]}).copy_to(devices()[0]);
    const std::vector<std::function<void()>> ways = {[&] { (*model_)(x); }, [&] { (*anew_)(x); },
                                                     [&] { (*staying_)(x); }};
    for (const auto& way : ways) way();
    const DataParallel::Traffic before = anew_->traffic();
    ways[1]();
    const DataParallel::Traffic after = anew_->traffic();
    std::vector<std::vector<double>> seconds(ways.size());
    for (int round = 0; round < kRounds; ++round)
      for (size_t i = 0; i < ways.size(); ++i) seconds[i].push_back(seconds_of(ways[i], devices()[0]));
    const auto traffic = [](const DataParallel::Sent& now, const DataParallel::Sent& then) {
      return Json{{"transfers", now.transfers - then.transfers}, {"bytes", now.bytes - then.bytes}};
    };
    return {{"batch", batch},
            {"single_s", median(seconds[0])},
            {"dp_s", median(seconds[1])},
            {"dp_persistent_s", median(seconds[2])},
            {"inputs", traffic(after.inputs, before.inputs)},
            {"model", traffic(after.parameters, before.parameters)},
            {"outputs", traffic(after.outputs, before.outputs)}};
  }

 private:
  TrainOptions options_;
  std::unique_ptr<nn::Module> model_;
  std::unique_ptr<DataParallel> anew_, staying_;
};

std::string row_text(const Json& row) {
  const auto seconds = [&](const char* key) { return row[key].get<double>(); };
  const double single = seconds("single_s"), dp = seconds("dp_s"), staying = seconds("dp_persistent_s");
  const auto mb = [&](const char* what) { return row[what]["bytes"].get<double>() / 1e6; };
  return fmt::format("| {} | {:.2f} | {:.2f} | {:.2f}x | {:.2f} | {:.2f}x | {:.2f} | {:.2f} | {:.4f} |\n",
                     row["batch"].get<int64_t>(), 1e3 * single, 1e3 * dp, single / dp, 1e3 * staying, single / staying,
                     mb("inputs"), mb("model"), mb("outputs"));
}

constexpr const char* kHead =
    "%s, %zu devices from %s, %d threads in all: one forward pass, median of %d rounds\n\n"
    "| batch | single, ms | dp, ms | speed-up | dp-persistent, ms | speed-up | MB of inputs | of the model | of "
    "outputs "
    "|\n|---|---|---|---|---|---|---|---|---|\n";
constexpr const char* kExplanation =
    "\nFor each of M = %zu devices a pass of dp sends a part of the batch, the model (%zu tensors) and the outputs "
    "back: 3 M\ntransfers, of which 3 stay on the first device. The model has the same size for every batch, so that "
    "for a small\nbatch its transfer takes more time than the other devices save. With --dp-persistent the model is "
    "sent only after\nit has changed: 2 M transfers remain. CPU devices share the machine's cores.\n";

}  // namespace

int compare_inference(const Invocation& invocation) {
  TrainOptions options;
  apply_flags(options, invocation);
  options.parallel.strategy.name = "dp";
  options = resolve(options);
  const DeviceType type = parse_device(options.execution.device).type;
  RT_CHECK_AS(UsageError, devices_of(options.parallel, type).size() > 1,
              "compare --inference: needs --devices 2 or more");
  const std::string* const sizes = invocation.flag("batch-sizes");
  const std::vector<int64_t> batches = numbers_of("batch-sizes", sizes ? *sizes : "1,4,16,64,256", 1'000'000);
  set_threads(int(options.execution.threads));
  manual_seed(uint64_t(options.execution.seed));
  Inference inference(options);
  const bool json = invocation.has("json");
  const size_t m = inference.devices().size();
  if (!json)
    std::printf(kHead, options.model.name.c_str(), m, options.execution.device.c_str(), int(options.execution.threads),
                kRounds);
  Json rows = Json::list();
  for (const int64_t batch : batches) {
    const Json& row = rows.push_back(inference.measure(batch));
    if (!json) std::printf("%s", row_text(row).c_str()), std::fflush(stdout);
  }
  if (json) {
    const Json all{
        {"model", options.model.name}, {"devices", m}, {"threads", options.execution.threads}, {"passes", rows}};
    std::printf("%s\n", all.text().c_str());
    return 0;
  }
  std::printf(kExplanation, m, inference.tensors());
  return 0;
}

}  // namespace ringtape::cli
