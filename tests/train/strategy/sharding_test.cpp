// Ranks that share the optimizer's state get the same bytes as ranks that each have all of it.
#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <optional>
#include <tuple>

#include "autograd/checkpoint.h"
#include "autograd/create.h"
#include "autograd/inplace.h"
#include "autograd/ops.h"
#include "core/part.h"
#include "nn/nn.h"
#include "tests/support/comm_worlds.h"
#include "tests/support/settings.h"
#include "tests/support/support.h"
#include "tests/support/what_is_left.h"
#include "train/loop/model_state.h"

namespace ringtape {
namespace {

using comm::test::on_group;
using test::add_files, test::copy_of, test::expect_same;

// A training of a few steps. The network has convolutions, norms, parameters of one element and of several cells, and
// layers that only some ranks use, or none.
struct Training {
  std::string optimizer = "adam";
  double clip = 0, ema = 0, dropout = 0;
  std::string precision = "f32", reduction = "sum";
  DType dtype = DType::f32;
  int64_t accumulate = 1;
  int views = 1;             // passes through the network in a step
  bool checkpoints = false;  // activations are computed again in the backward pass
  int steps = 4;

  std::string str() const {
    return concat(optimizer, ", clip ", clip, ", ema ", ema, ", dropout ", dropout, ", ", precision, ", reduction ",
                  reduction, ", ", dtype, ", accumulate ", accumulate, ", views ", views,
                  checkpoints ? ", checkpoints" : "");
  }

  struct Net : nn::Module {
    nn::Conv2d conv{3, 12, 3, nn::Conv2d::Options{.pad = 1, .bias = false}};
    nn::BatchNorm norm{12};
    nn::Linear wide{12 * 6 * 6, 70}, odd{70, 5}, some{70, 5}, none{4, 4};
    Tensor scale = ones({});
    double p;
    bool checkpoints;
    Net(double dropout, bool checkpoints) : p(dropout), checkpoints(checkpoints) {}
    Tensor forward(const Tensor& x) override { return outputs(x, false); }
    Tensor outputs(const Tensor& x, bool more) {
      const auto hidden = [this](const Tensors& in) {
        const Tensor& x = in[0];
        return ringtape::dropout(relu(wide(reshape(relu(norm(conv(x))), {x.dim(0), 12 * 6 * 6}))), p);
      };
      const Tensor h = checkpoints ? checkpoint(hidden, {x}) : hidden({x});
      const Tensor y = odd(h) * scale;
      return more ? y + some(h) : y;
    }
    void visit(nn::Visitor& v) override {
      v.child("conv", conv), v.child("norm", norm), v.child("wide", wide), v.child("odd", odd), v.child("some", some),
          v.child("none", none);
      v.parameter("scale", scale);
    }
    std::string str() const override { return "Net"; }
  };

  static bool shares(const std::string& strategy) { return strategy.ends_with(" --share-weights"); }

  // The bytes of all that the training leaves, by name. Only rank 0 has what others hold.
  test::Left run(comm::ProcessGroup& group, const std::string& strategy, bool writes) const {
    set_threads(1);
    manual_seed(3);
    Net net(dropout, checkpoints);
    nn::cast_to(net, dtype);
    TrainOptions o;
    o.step.optimizer.name = optimizer;
    test::set(o, {{"weight-decay", "0.01"}});
    if (optimizer == "sgd") test::set(o, {{"momentum", "0.9"}, {"nesterov", "true"}});
    o.step.clip_grad_norm = clip, o.step.ema = ema, o.step.accumulate = accumulate;
    o.execution.precision = precision, o.execution.deterministic = true;
    o.parallel.strategy.name = strategy.substr(0, strategy.find(' '));
    o.parallel.reducer.bucket_mb = 0.03, o.parallel.reducer.reduction.name = reduction;
    const int within = group.size() > 2 && group.size() % 2 == 0 ? group.size() / 2 : 1;
    test::set(o, {{"shard-within", std::to_string(within)}, {"share-weights", shares(strategy) ? "true" : "false"}});
    const auto objective = [&](const Tensors& images, const Labels& labels) -> Outcome {
      Tensor logits = net.outputs(images[0], group.rank() == 1);
      for (int view = 1; view < views; ++view) logits = logits + net.outputs(images[0] * 0.5, false);
      return {.loss = cross_entropy(logits, labels.y), .auxiliary_loss = {}, .logits = logits.detach(), .spread = {}};
    };
    Step step(net, objective, o.step, o.execution, group, o.parallel);
    test::Left out;
    for (int i = 0; i < steps; ++i) {
      const int64_t samples = i == steps - 1 ? 2 : 9 + i;  // in the last step some ranks have none
      const Part own = part_of(samples, group.size(), group.rank());
      manual_seed(uint64_t(100 + i));
      const Tensor x = randn({samples, 6, 6, 3}, 0, i == 1 ? 40 : 1, dtype);
      std::vector<int64_t> labels;
      for (int64_t j = own.begin; j < own.end; ++j) labels.push_back((j + i) % 5);
      manual_seed(uint64_t(1000 * i + group.rank()));  // of dropout
      const Step::Result r =
          step.run(contiguous(slice(x, 0, own.begin, own.end)), from_host(labels, {own.size()}), 0.01, {}, {samples});
      out.emplace(concat("loss ", i), r.loss);
    }
    step.exchange([&] { add_files(out, step); });
    if (writes) {
      const NoGrad no_grad;
      mul_(net.odd.weight, 0.5);  // by the user, on all ranks
    }
    if (step.ema()) {
      const Ema::Use use(*step.ema());
      for (const nn::Named& p : nn::named_parameters(net)) out.emplace("judged " + p.name, copy_of(*p.tensor));
    }
    for (const nn::Named& p : nn::named_parameters(net)) out.emplace("weight " + p.name, copy_of(*p.tensor));
    for (const nn::Named& b : nn::named_buffers(net)) out.emplace("buffer " + b.name, copy_of(*b.tensor));
    if (step.gradient_scale().dynamic()) out.emplace("scale", copy_of(step.gradient_scale().state()));
    return out;
  }
};

using Strategies = std::vector<std::string>;

void expect_same_bytes(comm::ProcessGroup& group, const Training& training, const Strategies& strategies) {
  std::optional<test::Left> of_ddp[2];  // without and with writes
  for (const std::string& strategy : strategies) {
    if (Training::shares(strategy) && !group.transport().abilities().shares_memory) continue;
    const bool writes = !Training::shares(strategy);  // else every rank would write to one memory
    std::optional<test::Left>& whole = of_ddp[writes];
    if (!whole) whole = training.run(group, "ddp", writes);
    expect_same(*whole, training.run(group, strategy, writes),
                concat(strategy, " on ", group.size(), " ranks, ", training.str()));
  }
}

std::vector<Training> ladder() {
  std::vector<Training> out;
  for (const OptimizerEntry& o : optimizers()) {
    out.push_back({.optimizer = o.name});
    out.push_back({.optimizer = o.name, .clip = 0.5, .ema = 0.9, .dropout = 0.3});
    out.push_back({.optimizer = o.name, .clip = 0.5, .ema = 0.9, .precision = "f16"});
    out.push_back({.optimizer = o.name, .precision = "bf16", .reduction = "bf16"});
    out.push_back({.optimizer = o.name, .clip = 0.5, .dtype = DType::f64, .accumulate = 2});
    out.push_back({.optimizer = o.name, .ema = 0.5, .reduction = "f16"});
    out.push_back({.optimizer = o.name, .views = 3});
    out.push_back({.optimizer = o.name, .dropout = 0.3, .precision = "bf16", .checkpoints = true});
  }
  return out;
}

#if defined(__SANITIZE_ADDRESS__)
const std::vector<int> kRanks = {3}, kRanksOfATransport = {3};  // it takes twenty times as long
#else
const std::vector<int> kRanks = {1, 2, 3, 4, 7}, kRanksOfATransport = {2, 3, 4};
#endif

const Strategies kSharded = {"zero1", "zero2", "zero1 --share-weights", "zero2 --share-weights", "fsdp", "hsdp"};

TEST(Sharding, HasTheBytesOfDdpWithAllSettings) {
  for (const int n : kRanks)
    EXPECT_SILENT(on_group(comm::test::kWorlds[0], n, [&](comm::ProcessGroup& group) {
      for (const Training& t : ladder()) expect_same_bytes(group, t, kSharded);
      expect_same_bytes(group, {.clip = 1, .reduction = "powersgd"}, {"zero1"});
    }));
}

TEST(Sharding, HasTheBytesOfDdpWithGroupsOfThree) {
  EXPECT_SILENT(on_group(comm::test::kWorlds[0], 6, [&](comm::ProcessGroup& group) {
    for (const Training& t : ladder())
      if (t.optimizer == "adam") expect_same_bytes(group, t, {"hsdp"});
  }));
}

TEST(Sharding, HasTheBytesOfDdpOverEveryTransport) {
  for (const comm::test::World& world : comm::test::kWorlds)
    for (const int n : kRanksOfATransport) {
      if (std::string(world.name) == "simulated") continue;  // as threads
      EXPECT_SILENT(on_group(world, n, [&](comm::ProcessGroup& group) {
        for (const char* optimizer : {"adam", "muon", "lars"})
          expect_same_bytes(group, {.optimizer = optimizer, .clip = 0.5, .ema = 0.9}, kSharded);
      })) << world.name;
    }
}

// Peak memory of both ranks, from before the model to behind a step: nearly all of it is model state.
int64_t peak_of(const std::string& strategy, int64_t& state, int64_t& formula) {
  std::atomic<int64_t> peak{0}, own{0}, expected{0};
  std::barrier here(2);
  EXPECT_SILENT(on_group(comm::test::kWorlds[0], 2, [&](comm::ProcessGroup& group) {
    set_threads(1);
    here.arrive_and_wait();
    reset_peak_memory({});
    const int64_t before = memory_stats({}).peak;
    here.arrive_and_wait();
    nn::Sequential model;
    for (int i = 0; i < 16; ++i) model.add<nn::Linear>(256, 256);
    TrainOptions o;
    o.step.ema = 0.9, o.parallel.strategy.name = strategy, o.parallel.reducer.bucket_mb = 0.25;
    Step step(model, cross_entropy_of(model, nullptr, 0), o.step, o.execution, group, o.parallel);
    for (int i = 0; i < 2; ++i) step.run(ones({1, 256}), zeros({1}, DType::i64), 0.1, {}, {2});
    here.arrive_and_wait();
    peak = memory_stats({}).peak - before, own = step.state_bytes();
    expected = model_state_bytes(model_size(model), o.step, o.parallel, 2);
    here.arrive_and_wait();
  }));
  state = own, formula = expected;
  return peak;
}

TEST(Sharding, NeedsTheMemoryOfItsFormula) {
  constexpr double kWeights = 16 * (256 * 256 + 256) * 4, kBucket = (256 * 256 + 256) * 4;
  // Weights, gradients, two moments and an average; blocks of memory are up to a sixteenth larger, and the model's
  // first weights are there while they are copied.
  for (const auto& [strategy, whole, shared, buckets] :
       {std::tuple("ddp", 5, 0, 0), {"zero1", 2, 3, 0}, {"zero2", 1, 4, 3}, {"fsdp", 0, 5, 6}}) {
    int64_t state = 0, formula = 0;
    const auto peak = double(peak_of(strategy, state, formula));
    const double expected = kWeights * whole + kWeights * shared / 2;
    EXPECT_NEAR(double(state), expected, 0.01 * expected) << strategy;
    EXPECT_NEAR(double(formula), expected, 0.01 * expected) << strategy;
    EXPECT_GT(peak, 2 * expected) << strategy;
    const double first = strategy == std::string("fsdp") ? kWeights : 0;  // until they are divided
    EXPECT_LT(peak, 2 * 17 / 16. * (std::max(expected + buckets * kBucket, first * 1.5) + kBucket)) << strategy;
  }
}

// In 16-bit precision weights are gathered in 16 bits, and biases once in a step.
TEST(Sharding, GathersHalfTheBytesInHalfThePrecision) {
  constexpr int64_t kLayers = 8, kWidth = 64, kSteps = 3;
  for (const bool keeps : {false, true})
    for (const std::string precision : {"f32", "bf16", "f16"}) {
      std::atomic<int64_t> gathered{0};
      EXPECT_SILENT(on_group(comm::test::kWorlds[0], 2, [&](comm::ProcessGroup& group) {
        set_threads(1);
        nn::Sequential model;
        for (int64_t i = 0; i < kLayers; ++i) model.add<nn::Linear>(kWidth, kWidth);
        TrainOptions o;
        o.execution.precision = precision;
        o.parallel.strategy.name = "fsdp", o.parallel.reducer.bucket_mb = 1e-3;
        test::set(o, {{"keep-weights", keeps ? "true" : "false"}});
        Step step(model, cross_entropy_of(model, nullptr, 0), o.step, o.execution, group, o.parallel);
        for (int64_t i = 0; i < kSteps; ++i) step.run(ones({2, kWidth}), zeros({2}, DType::i64), 0.1, {}, {4});
        gathered = step.placement().gathered_weights()->totals().bytes;
      }));
      // The last three layers of the forward pass are there when the backward pass begins, and the backward pass of the
      // first layer needs no weights: its images have no gradient. What is on its way after the last step is not used.
      const int64_t layers = kLayers + (keeps ? 0 : kLayers - 3 - 1);
      const int64_t rounds = kSteps * layers, matrix = kWidth * kWidth, bias = kWidth;
      const int64_t expected = precision == "f32" ? rounds * (matrix + bias) * 4
                                                  : rounds * (matrix + bias) * 2 + kSteps * kLayers * bias * 4;
      EXPECT_EQ(gathered, expected) << precision << (keeps ? ", keeps" : "");
    }
}

// With hsdp, ranks of a machine gather the weights of others once in a step, and then their own halves of them.
TEST(Sharding, GathersBetweenGroupsOnceInAStep) {
  constexpr int64_t kLayers = 8, kWidth = 64, kSteps = 3, kLayer = kWidth * kWidth + kWidth;
  for (const int machine : {1, 2}) {  // ranks of it, which are taken if the user does not say how many
    std::atomic<int64_t> all{0}, within{0}, state{0};
    const auto train = [&](comm::ProcessGroup& group) {
      set_threads(1);
      nn::Sequential model;
      for (int64_t i = 0; i < kLayers; ++i) model.add<nn::Linear>(kWidth, kWidth);
      TrainOptions o;
      o.parallel.strategy.name = "hsdp";
      if (machine == 1) test::set(o, {{"shard-within", "2"}});
      o.parallel.reducer.bucket_mb = 1e-3;
      Step step(model, cross_entropy_of(model, nullptr, 0), o.step, o.execution, group, o.parallel);
      for (int64_t i = 0; i < kSteps; ++i) step.run(ones({2, kWidth}), zeros({2}, DType::i64), 0.1, {}, {8});
      const comm::ShardedBuffers::Totals& totals = step.placement().gathered_weights()->totals();
      all = totals.bytes, within = totals.within;
      state += step.state_bytes();
    };
    EXPECT_EQ(on_group(comm::test::kWorlds[0], 4, train, machine), "");
    EXPECT_EQ(within, kSteps * (kLayers - 3 - 1) * kLayer * 4) << machine;
    EXPECT_EQ(all - within, kSteps * kLayers * kLayer * 4) << machine;
    // Weights, gradients and two moments, and the weights again in both groups.
    EXPECT_EQ(state, (4 + 2) * kLayers * kLayer * 4) << machine;
  }
}

TEST(Sharding, ARankWithAnotherStrategyIsNamed) {
  const std::string cause = on_group(comm::test::kWorlds[0], 2, [&](comm::ProcessGroup& group) {
    nn::Linear model(4, 4);
    TrainOptions o;
    o.parallel.strategy.name = group.rank() == 1 ? "zero1" : "ddp";
    const Step step(model, cross_entropy_of(model, nullptr, 0), o.step, o.execution, group, o.parallel);
  });
  EXPECT_MENTIONS(cause, "the parameters differ: rank 1 has 'sums in shards");
}

// However large a tensor is: 134 MB here.
TEST(Sharding, WritesAndReadsFilesInSmallParts) {
  std::barrier here(2);
  EXPECT_SILENT(on_group(comm::test::kWorlds[0], 2, [&](comm::ProcessGroup& group) {
    set_threads(1);
    nn::Sequential model;
    model.add<nn::Linear>(4096, 8192);
    TrainOptions o;
    o.step.optimizer.name = "sgd", o.parallel.strategy.name = "zero1";
    test::set(o, {{"momentum", "0.9"}});
    Step step(model, cross_entropy_of(model, nullptr, 0), o.step, o.execution, group, o.parallel);
    reset_peak_memory({});
    const int64_t before = memory_stats({}).current;
    here.arrive_and_wait();
    step.exchange([&] {
      for (const FileTensor& t : step.state())
        for (int64_t row = 0; row < t.rows(); row += t.rows_at_once()) {
          const Part rows{row, std::min(row + t.rows_at_once(), t.rows())};
          t.put(rows, Tensor(t.get(rows)));
        }
    });
    here.arrive_and_wait();
    if (memory_stats({}).peak - before > 2 * (64 << 20)) throw CommError("more than 64 MiB on each rank");
  }));
}

}  // namespace
}  // namespace ringtape
