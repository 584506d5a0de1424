// The formulas of a rank's memory beside what ranks hold, and what is said of them.
#include "train/loop/model_state.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <numeric>

#include "autograd/create.h"
#include "nn/nn.h"
#include "tests/support/comm_worlds.h"
#include "tests/support/settings.h"
#include "tests/support/support.h"
#include "train/optim/sgd.h"

namespace ringtape {
namespace {

constexpr int kLayers = 16;

// Layers that are alike, so that whole parameters, too, can be divided equally.
struct Net : nn::Sequential {
  Net() {
    for (int i = 0; i < kLayers; ++i) add<nn::Linear>(128, 128, false);
  }
};

TrainOptions options_of(const std::string& optimizer, const std::string& momentum, double ema,
                        const std::string& strategy) {
  TrainOptions o;
  o.step.optimizer.name = optimizer, o.step.ema = ema;
  test::set(o, {{"momentum", momentum}});
  o.parallel.strategy.name = strategy;
  o.parallel.reducer.bucket_mb = 0.25;  // four layers
  return o;
}

// Step::state_bytes() of each rank, after a step.
std::vector<int64_t> states_of(int ranks, const TrainOptions& o) {
  std::mutex mutex;
  std::vector<int64_t> out;
  const std::string cause = comm::test::on_group(comm::test::kWorlds[0], ranks, [&](comm::ProcessGroup& group) {
    set_threads(1);
    Net net;
    Step step(net, cross_entropy_of(net, nullptr, 0), o.step, o.execution, group, o.parallel);
    step.run(ones({1, 128}), zeros({1}, DType::i64), 0.1, {}, {ranks});
    const std::lock_guard lock(mutex);
    out.push_back(step.state_bytes());
  });
  EXPECT_EQ(cause, "");
  return out;
}

TEST(ModelState, IsThatOfItsFormula) {
  Net net;
  const int64_t parameters = nn::count_parameters(net);
  std::vector<std::pair<std::string, std::string>> rules = {{"sgd", "0"}};
  for (const OptimizerEntry& o : optimizers()) rules.emplace_back(o.name, "0.9");
  for (const auto& [optimizer, momentum] : rules)
    for (const double ema : {0.0, 0.9})
      for (const char* strategy : {"ddp", "zero1", "zero2", "fsdp", "hsdp", "zero2 --share-weights"})
        for (const int ranks : {1, 2, 4}) {
          TrainOptions o = options_of(optimizer, momentum, ema, std::string(strategy).substr(0, 5));
          test::set(o, {{"shard-within", std::to_string(std::max(ranks / 2, 1))},
                        {"share-weights", std::strlen(strategy) > 5 ? "true" : "false"}});
          const auto formula = double(model_state_bytes({parameters}, o.step, o.parallel, ranks));
          const std::vector<int64_t> states = states_of(ranks, o);
          const std::string what = concat(optimizer, " ", momentum, ", ema ", ema, ", ", strategy, " ", ranks);
          ASSERT_EQ(states.size(), size_t(ranks)) << what;
          EXPECT_EQ(double(std::accumulate(states.begin(), states.end(), int64_t{0})), ranks * formula) << what;
          EXPECT_NEAR(double(std::ranges::max(states)), formula, 0.01 * formula) << what;
        }
}

TEST(ModelState, BucketsComeBesideIt) {
  Net net;
  const std::vector<Part> places = flat_places(nn::named_parameters(net));
  constexpr int64_t kBucket = 4 * 4 * 128 * 128;
  const auto bytes = [&](const char* strategy, int ranks, bool keep_weights = false, int64_t accumulate = 1) {
    TrainOptions o = options_of("adam", "0.9", 0, strategy);
    test::set(o, {{"keep-weights", keep_weights ? "true" : "false"}});
    o.step.accumulate = accumulate;
    return bucket_bytes(places, o.step, o.parallel, ranks);
  };
  EXPECT_EQ(bytes("ddp", 4), 0);
  EXPECT_EQ(bytes("zero1", 4), 0);
  EXPECT_EQ(bytes("zero2", 4), 3 * kBucket);
  EXPECT_EQ(bytes("fsdp", 4), 6 * kBucket);
  EXPECT_EQ(bytes("fsdp", 1), 0);
  const int64_t all = 4 * places.back().end;
  EXPECT_EQ(bytes("zero2", 2, false, 2), all);
  EXPECT_EQ(bytes("fsdp", 2, true), 3 * kBucket + all);
}

TEST(ModelState, NamesTheStrategiesThatNeedLess) {
  StepOptions step;
  step.optimizer.name = "adam";
  ParallelOptions parallel;
  parallel.strategy.name = "ddp";
  EXPECT_EQ(model_state_bytes({44'700'000}, step, parallel, 4), 715'200'000);
  EXPECT_EQ(smaller_strategy({44'700'000}, step, parallel, 4),
            "; a rank's weights, gradients and optimizer take 715.2 MB, with --strategy zero1 447.0 MB, "
            "with --strategy zero2 312.9 MB, with --strategy fsdp 178.8 MB");
  EXPECT_EQ(smaller_strategy({44'700'000, 44'700'000}, step, parallel, 4),
            "; a rank's weights, teacher, gradients and optimizer take 894.0 MB, with --strategy zero1 625.8 MB, "
            "with --strategy zero2 491.7 MB, with --strategy fsdp 223.5 MB");
  EXPECT_EQ(smaller_strategy({44'700'000}, step, parallel, 1), "");
  parallel.strategy.name = "fsdp";
  EXPECT_EQ(smaller_strategy({44'700'000}, step, parallel, 4), "");
  parallel.strategy.name = "dp";
  EXPECT_EQ(smaller_strategy({44'700'000}, step, parallel, 1), "");
  parallel.strategy.name = "ddp", step.optimizer.name = "sgd", step.optimizer.of("sgd").as<Sgd::Options>().momentum = 0;
  EXPECT_MENTIONS(smaller_strategy({1000}, step, parallel, 2), "with --strategy zero2");
  EXPECT_EQ(smaller_strategy({1000}, step, parallel, 2).find("zero1"), std::string::npos);
}

}  // namespace
}  // namespace ringtape
