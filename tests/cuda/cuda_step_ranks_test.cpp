// Steps of ranks that repeat recorded ones train as steps without a graph: the same bytes on all ranks.
#include <cmath>

#include "autograd/create.h"
#include "autograd/ops.h"
#include "autograd/tape.h"
#include "comm/process_group.h"
#include "comm/transport/gpu.h"
#include "core/cuda/graph.h"
#include "core/log.h"
#include "core/recording.h"
#include "kernels/copy.h"
#include "kernels/fill.h"
#include "nn/nn.h"
#include "tests/support/cuda_support.h"
#include "tests/support/support.h"
#include "tests/support/thread_ranks.h"
#include "train/loop/step.h"
#include "train/settings/options.h"

namespace ringtape {
namespace {

using test::values;

constexpr int64_t kIn = 12, kClasses = 4;
constexpr int kSteps = 9;

struct Ranks {
  const char* name = "";
  int count = 2;
  const char* optimizer = "sgd";
  TrainOptions options{};
  // Whether this rank repeats steps.
  std::function<bool(int rank)> repeats = [](int) { return true; };
  // Its samples in a step.
  std::function<int64_t(int rank, int step)> samples = [](int, int) { return int64_t{4}; };
  // Whether it asks all to stop.
  std::function<bool(int rank, int step)> asks = [](int, int) { return false; };
  // Whether it waits for a number of its backward pass.
  std::function<bool(int rank)> waits = [](int) { return false; };
};

struct Network : nn::Module {
  nn::Linear first{kIn, 40}, second{40, kClasses};
  nn::BatchNorm norm{40};
  nn::Dropout dropout{0.2};
  Network() { nn::Module::train(); }
  Tensor forward(const Tensor& x) override { return second(dropout(norm(first(x), Activation::relu))); }
  void visit(nn::Visitor& v) override {
    v.child("first", first), v.child("second", second), v.child("norm", norm), v.child("dropout", dropout);
  }
  std::string str() const override { return "Network"; }
};

Tensor waiting(const Tensor& x) {
  return record("waiting", {x}, x.detach() * 1, [](const Tensor& dy) -> Tensors {
    dy.item();
    return {dy};
  });
}

// Of a rank: losses, what the ranks said together, and in the end weights, state and buffers.
using Trained = std::vector<double>;

Trained train(comm::ProcessGroup& group, const Ranks& ranks, bool graph) {
  const Device device = group.transport().device();
  const int rank = group.rank();
  manual_seed(3);
  Network model;
  nn::move_to(model, device);
  TrainOptions o = ranks.options;
  o.step.optimizer.name = ranks.optimizer, o.parallel.strategy.name = "ddp";
  if (o.parallel.sync_bn) nn::synchronize_batch_norm(model, &group);
  const auto objective = [&, learn = cross_entropy_of(model, nullptr, 0)](const Tensors& x, const Labels& y) {
    Outcome out = learn(x, y);
    if (ranks.waits(rank)) out.loss = waiting(out.loss);
    return out;
  };
  Step step(model, objective, o.step, o.execution, group, o.parallel);
  if (graph && ranks.repeats(rank)) step.record_steps();
  manual_seed(uint64_t(20 + rank));
  Trained out;
  for (int now = 0; now < kSteps; ++now) {
    int64_t all = 0;
    for (int r = 0; r < ranks.count; ++r) all += ranks.samples(r, now);
    const int64_t own = ranks.samples(rank, now);
    const Tensor x = rand({own, kIn}, -1, 1, DType::f32, device);
    const Tensor y = cast(rand({own}, 0, kClasses - 0.1, DType::f32, device), DType::i64);
    const Step::Result result =
        step.run(x, y, 0.1 / (now + 1), {}, {.samples = all, .riders = {double(ranks.asks(rank, now))}});
    out.push_back(result.loss.item());
    out.push_back(step.placement().reducer()->words().riders()[kStop]);
  }
  out.push_back(double(step.count())), out.push_back(double(default_generator().state().counter));
  for (const Tensor& t : step.replicated())
    for (const double v : values(t)) out.push_back(v);
  return out;
}

Device device_of(int rank) { return {DeviceType::cuda, rank % runtime(test::kCuda).device_count()}; }

uint64_t launches() {
#if defined(RINGTAPE_EMULATION_BUILD)
  return emulation::calls()["cudaGraphLaunch"];
#else
  return 0;
#endif
}

// Returns the launches of graphs, of all ranks.
uint64_t expect_same(const Ranks& ranks) {
  std::vector<Trained> plain(size_t(ranks.count)), repeated(size_t(ranks.count));
  uint64_t counted = 0;
  for (const bool graph : {false, true}) {
    const uint64_t before = launches();
    const std::string cause =
        comm::test::run_threads(ranks.count, 1, comm::Seconds(60), [&](const comm::Context& context) {
          set_threads(1);
          comm::ProcessGroup group(comm::p2p_transport(context, device_of(context.rank)));
          (graph ? repeated : plain)[size_t(context.rank)] = train(group, ranks, graph);
        });
    EXPECT_EQ(cause, "") << ranks.name;
    if (graph) counted = launches() - before;
    else EXPECT_EQ(launches(), before);
  }
  for (size_t r = 0; r < plain.size(); ++r) EXPECT_EQ(repeated[r], plain[r]) << ranks.name << ", rank " << r;
  return counted;
}

class StepsOfRanks : public test::OnCuda {};

constexpr uint64_t kRepeated = kSteps - 2;  // and the first of these recorded

void expect_launches([[maybe_unused]] uint64_t counted, [[maybe_unused]] uint64_t expected) {
#if defined(RINGTAPE_EMULATION_BUILD)
  EXPECT_EQ(counted, expected);
#endif
}

// The graph ends where a bucket is sent: the parts are buckets and the update.
TEST_F(StepsOfRanks, OneBucketIsTwoLaunches) { expect_launches(expect_same({"one bucket"}), kRepeated * 2 * 2); }

TEST_F(StepsOfRanks, EachBucketIsSentWhileTheNextIsComputed) {
  for (const int count : {2, 3}) {
    Ranks ranks{"buckets", count, "adam"};
    ranks.options.parallel.reducer.bucket_mb = 1e-4;
    expect_launches(expect_same(ranks), kRepeated * uint64_t(count) * 4);
  }
}

TEST_F(StepsOfRanks, ClippingAnAverageAndPartsOfBatches) {
  Ranks ranks{"clipping", 2, "sgd"};
  ranks.options.step.clip_grad_norm = 0.5, ranks.options.step.ema = 0.9, ranks.options.step.accumulate = 2;
  expect_launches(expect_same(ranks), kRepeated * 2 * 2);
}

TEST_F(StepsOfRanks, SixteenBits) {
  for (const char* precision : {"bf16", "f16"})
    for (const char* reduction : {"sum", "bf16", "f16"}) {
      Ranks ranks{reduction};
      ranks.options.execution.precision = precision, ranks.options.parallel.reducer.reduction.name = reduction;
      expect_launches(expect_same(ranks), kRepeated * 2 * (std::string_view(reduction) == "sum" ? 2 : 5));
    }
}

// Collectives of the forward and the backward pass end a part of the graph, too.
TEST_F(StepsOfRanks, BatchNormalisationOverRanks) {
  Ranks ranks{"sync-bn"};
  ranks.options.parallel.sync_bn = true;
  expect_launches(expect_same(ranks), kRepeated * 2 * 4);
}

TEST_F(StepsOfRanks, RanksThatComeAndGoHearOfItInTheSameStep) {
  Ranks ranks{"elastic"};
  ranks.options.parallel.elastic.on = true;
  ranks.asks = [](int rank, int step) { return rank == 1 && step == 6; };
  expect_launches(expect_same(ranks), kRepeated * 2 * 2 - 2);
}

// Each rank for itself repeats a step, records it or runs it as ever: others do not notice.
TEST_F(StepsOfRanks, NeedNotDoAsTheOthersDo) {
  Ranks ranks{"one of two"};
  ranks.repeats = [](int rank) { return rank == 0; };
  expect_launches(expect_same(ranks), kRepeated * 2);
  ranks.name = "asked in between", ranks.repeats = [](int) { return true; };
  ranks.asks = [](int rank, int step) { return rank == 0 && (step == 3 || step == 5); };
  expect_launches(expect_same(ranks), kRepeated * 2 + (kRepeated - 2) * 2);
  ranks.name = "other sizes", ranks.asks = [](int, int) { return false; };
  ranks.samples = [](int rank, int step) { return int64_t{4} + (rank == 1 && step == 6); };
  expect_launches(expect_same(ranks), (kRepeated - 1) * 2 * 2);
}

TEST_F(StepsOfRanks, WhatCannotBeRecordedRunsAsEver) {
  std::vector<std::string> lines;
  set_log_sink([&](const std::string& line) { lines.push_back(line); });
  Ranks ranks{"waits"};
  ranks.waits = [](int rank) { return rank == 1; };
  const uint64_t counted = expect_same(ranks);
  set_log_sink({});
  expect_launches(counted, kRepeated * 2);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_NE(lines[0].find("steps are not recorded as a graph"), std::string::npos) << lines[0];
}

TEST_F(StepsOfRanks, SomeAreNeverRecorded) {
  for (const char* strategy : {"powersgd", "shares"}) {
    Ranks ranks{strategy};
    if (std::string_view(strategy) == "shares") ranks.options.parallel.shares = 4;
    else ranks.options.parallel.reducer.reduction.name = strategy;
    expect_launches(expect_same(ranks), 0);
  }
}

// Another rank fails while this one repeats a step: it learns why, its step has not been, and it can go on alone.
TEST_F(StepsOfRanks, AFailureEndsAStepBeforeItsUpdate) {
  std::vector<double> before, after;
  const std::string cause = comm::test::run_threads(2, 1, comm::Seconds(60), [&](const comm::Context& context) {
    set_threads(1);
    const int rank = context.rank;
    const Device device = device_of(rank);
    manual_seed(3);
    Network model;
    nn::move_to(model, device);
    TrainOptions o;
    o.step.optimizer.name = "adam", o.parallel.strategy.name = "ddp";
    const Tensor x = ones({3, kIn}, DType::f32, device), y = zeros({3}, DType::i64, device);
    const auto make_step = [&](comm::ProcessGroup& group) {
      auto step =
          std::make_unique<Step>(model, cross_entropy_of(model, nullptr, 0), o.step, o.execution, group, o.parallel);
      step->record_steps();
      return step;
    };
    {
      comm::ProcessGroup group(comm::p2p_transport(context, device));
      const auto step = make_step(group);
      const auto state = [&] {
        std::vector<double> out = values(step->placement().parameters().values());
        out.push_back(double(step->count())), out.push_back(double(default_generator().state().counter));
        return out;
      };
      for (int i = 0; i < 5; ++i) step->run(x, y, 0.1, {}, {6});
      if (rank == 1) throw Error("rank 1 has had enough");
      before = state();
      EXPECT_THROW(step->run(x, y, 0.1, {}, {6}), CommError);
      after = state();
    }
    const auto step = make_step(comm::alone());
    for (int i = 0; i < 5; ++i) EXPECT_TRUE(std::isfinite(step->run(x, y, 0.1, {}, {3}).loss.item()));
  });
  EXPECT_EQ(cause, "rank 1 has had enough");
  EXPECT_FALSE(before.empty());
  EXPECT_EQ(before, after);
}

// What was computed before a collective is requested is sent, and what is computed after its end has the result.
TEST_F(StepsOfRanks, CollectivesOfRecordedWork) {
  const std::string cause = comm::test::run_threads(2, 1, comm::Seconds(60), [&](const comm::Context& context) {
    set_threads(1);
    const Device device = device_of(context.rank);
    comm::ProcessGroup group(comm::p2p_transport(context, device));
    const Tensor x = full({5000}, 0, DType::f32, device), y = empty_like(x), z = empty_like(x), sum = empty_like(x);
    const auto body = [&] {
      copy(y, x * 2);
      const comm::Work first = group.all_reduce(y).start();
      copy(z, x + 1);
      const comm::Work second = group.all_reduce(z);  // which nobody starts
      first.wait();
      copy(sum, y + x);
      second.wait();
      copy(sum, sum + z * 100);
    };
    body();
    cuda::Graph graph(device.index, body);
    for (int i = 1; i < 4; ++i) {
      fill(x, 10.0 * i + group.rank());
      graph.launch();
      const double own = 10.0 * i + group.rank(), all = 20.0 * i + 1;
      RT_CHECK(values(sum) == std::vector<double>(5000, 2 * all + own + 100 * (all + 2)), "launch ", i, ": ",
               values(sum)[0]);
    }
  });
  EXPECT_EQ(cause, "");
}

TEST_F(StepsOfRanks, WhatARecordingCannotWaitForIsRefused) {
  comm::ProcessGroup group(
      comm::p2p_transport({0, 1, comm::memory_store(), std::make_shared<comm::Failure>()}, test::kCuda));
  const Tensor x = ones({4}, DType::f32, test::kCuda), host = ones({4});
  const comm::Work before = group.all_reduce(x);
  const auto refused = [](const std::function<void()>& f) {
    return test::message_of<DeviceError>([&] { cuda::Graph(0, f); });
  };
  EXPECT_NE(refused([&] { before.wait(); }).find("began before a recording"), std::string::npos);
  EXPECT_NE(refused([&] { comm::alone().all_reduce(host).wait(); }).find("of ranks on cpu:0 cannot be part"),
            std::string::npos);
  before.wait();
}

}  // namespace
}  // namespace ringtape
