// Steps repeated from a graph train as steps without one: the same bytes of weights, state and losses.
#include <cstring>
#include <map>

#include "autograd/create.h"
#include "autograd/ops.h"
#include "comm/process_group.h"
#include "comm/transport/gpu.h"
#include "core/log.h"
#include "tests/support/cuda_support.h"
#include "tests/support/settings.h"
#include "tests/support/support.h"
#include "tests/support/thread_ranks.h"
#include "train/settings/run_setup.h"

namespace ringtape {
namespace {

using test::kCuda;
using test::values;

struct Kept {
  TrainState state;
  std::map<std::string, Tensor> tensors;  // of checkpoints, on the CPU
};

struct Ran {
  std::vector<double> figures;  // of all steps, epochs and tests, as they were reported
  std::vector<Kept> saved;
  uint64_t launches = 0, recorded = 0;  // of graphs, emulated
};

uint64_t calls_of([[maybe_unused]] const char* name) {
#if defined(RINGTAPE_EMULATION_BUILD)
  return emulation::calls()[name];
#else
  return 0;
#endif
}

Ran train(TrainOptions o, bool graph, const Kept* from = nullptr, comm::ProcessGroup& group = comm::alone()) {
  o.execution.no_graph = !graph;
  RunSetup task(resolve(o));
  Trainer trainer = make_trainer(task, group);
  const auto each = [&trainer](const auto& f) {
    for (const TensorFile& file : trainer.files())
      for (const FileTensor& t : file.tensors) f(concat(file.name, ' ', t.name), t);
  };
  if (from) {
    each([&](const std::string& name, const FileTensor& t) { t.put({0, t.rows()}, from->tensors.at(name)); });
    trainer.restore(from->state);
  }
  Ran out;
  const uint64_t launches = calls_of("cudaGraphLaunch"), recorded = calls_of("cudaGraphInstantiate");
  const auto report = [&](const Metrics& m) {
    for (const auto& figure : {m.loss, m.top1, m.top5, m.spread, m.grad_norm, m.loss_scale})
      if (figure) out.figures.push_back(*figure);
  };
  trainer.fit(report, [&] {
    Kept& kept = out.saved.emplace_back();
    kept.state = trainer.state();
    each([&](const std::string& name, const FileTensor& t) {
      kept.tensors[name] = contiguous_on_host(t.get({0, t.rows()}));
    });
  });
  out.launches = calls_of("cudaGraphLaunch") - launches;
  out.recorded = calls_of("cudaGraphInstantiate") - recorded;
  return out;
}

void expect_same(const Kept& a, const Kept& b) {
  EXPECT_EQ(a.state.random.counter, b.state.random.counter);
  EXPECT_EQ(a.state.parameter_steps, b.state.parameter_steps);
  ASSERT_EQ(a.tensors.size(), b.tensors.size());
  for (const auto& [name, x] : a.tensors) {
    const Tensor& y = b.tensors.at(name);
    const size_t bytes = size_t(x.size()) * size_of(x.dtype());
    EXPECT_EQ(std::memcmp(View(x).data, View(y).data, bytes), 0) << name << " after step " << a.state.step;
  }
}

// Two epochs of six whole batches, with a checkpoint after every fifth step; then from the first checkpoint.
void expect_graph_trains_as_without(const TrainOptions& o, [[maybe_unused]] uint64_t launches,
                                    [[maybe_unused]] uint64_t recorded) {
  const Ran plain = train(o, false), graph = train(o, true);
  EXPECT_EQ(plain.figures, graph.figures);
  ASSERT_EQ(plain.saved.size(), graph.saved.size());
  for (size_t i = 0; i < plain.saved.size(); ++i) expect_same(plain.saved[i], graph.saved[i]);
  const Ran resumed = train(o, true, &graph.saved[0]);
  expect_same(resumed.saved.back(), plain.saved.back());
#if defined(RINGTAPE_EMULATION_BUILD)
  EXPECT_EQ(plain.launches, 0u);
  EXPECT_EQ(graph.launches, launches);
  EXPECT_EQ(graph.recorded, recorded);
#endif
}

// Six batches of 8 images in an epoch, and a seventh of 4.
TrainOptions small(const std::string& optimizer) {
  TrainOptions o;
  o.execution.device = "cuda:0", o.execution.threads = 1;
  o.step.optimizer.name = optimizer;
  o.schedule.lr = 0.01;
  test::set(o, {{"train-size", "52"}, {"test-size", "20"}, {"hidden", "12"}});
  o.data.val_size = 0;
  o.trainer.batch_size = 8, o.trainer.epochs = 2;
  o.checkpoint.steps = 5;
  o.run.log_every = 1;
  return o;
}

class StepGraphs : public test::OnCuda {};

constexpr uint64_t kLaunches = 10;  // of 12 whole batches

TEST_F(StepGraphs, SgdWithMomentumAndDropout) {
  TrainOptions o = small("sgd");
  test::set(o, {{"dropout", "0.3"}, {"weight-decay", "0.01"}});
  expect_graph_trains_as_without(o, kLaunches, 1);
}

TEST_F(StepGraphs, AdamWithAnAverageAndClipping) {
  TrainOptions o = small("adam");
  o.step.ema = 0.9, o.step.clip_grad_norm = 0.5;
  test::set(o, {{"dropout", "0.2"}, {"no-decay-norms", "true"}});
  expect_graph_trains_as_without(o, kLaunches, 1);
}

TEST_F(StepGraphs, PartsOfBatchesIn16Bits) {
  TrainOptions o = small("sgd");
  o.execution.precision = "f16", o.step.accumulate = 2, o.step.label_smoothing = 0.1;
  expect_graph_trains_as_without(o, kLaunches, 1);
}

TEST_F(StepGraphs, WeightsOfClasses) {
  TrainOptions o = small("sgd");
  o.step.class_weights = "balanced", o.step.label_smoothing = 0.1;
  expect_graph_trains_as_without(o, kLaunches, 1);
}

TEST_F(StepGraphs, MuonAndLars) {
  for (const char* rule : {"muon", "lars"}) expect_graph_trains_as_without(small(rule), kLaunches, 1);
}

// A small network on images of 8x8, and batches of any size.
struct Shop {
  std::unique_ptr<nn::Module> model;
  std::unique_ptr<Step> step;
  std::vector<double> figures;

  // `waits`: the host reads each loss within its step.
  Shop(const char* name, bool graph, bool waits = false) {
    manual_seed(3);
    TrainOptions o;
    o.model.name = name, o.step.optimizer.name = "sgd", o.execution.precision = "bf16";
    test::set(o, {{"width", "4"}, {"hidden", "9"}, {"dropout", "0.2"}});
    model = find_model(name).make({.image = {8, 8, 3}, .classes = 4, .settings = o.model.chosen()});
    nn::move_to(*model, kCuda);
    const auto objective = [learn = cross_entropy_of(*model, nullptr, 0), waits](const Tensors& x, const Labels& y) {
      Outcome out = learn(x, y);
      if (waits) out.loss.item();
      return out;
    };
    step = std::make_unique<Step>(*model, objective, o.step, o.execution);
    if (graph) step->record_steps();
    manual_seed(5);
  }
  Step::Result run(int64_t images, double lr, GlobalBatch global = {}) {
    const Tensor x = rand({images, 8, 8, 3}, -1, 1, DType::f32, kCuda);
    const Tensor y = cast(rand({images}, 0, 3.9, DType::f32, kCuda), DType::i64);
    return step->run(x, y, lr, {}, global);
  }
  void note(const Step::Result& result) {
    for (const Tensor& t : {result.loss, result.logits, result.ranks})
      for (const double v : values(t)) figures.push_back(v);
  }
  std::vector<double> state() const {
    std::vector<double> out;
    for (const Tensor& t : step->replicated())
      for (const double v : values(t)) out.push_back(v);
    return out;
  }
};

// Returns how many launches of graphs there were.
uint64_t expect_same_on(const char* model, const std::vector<int64_t>& sizes) {
  const auto trained = [&](bool repeated) {
    Shop shop(model, repeated);
    double lr = 0.1;
    for (const int64_t images : sizes) shop.note(shop.run(images, lr *= 0.9));
    return std::pair(shop.figures, shop.state());
  };
  const uint64_t before = calls_of("cudaGraphLaunch");
  EXPECT_EQ(trained(true), trained(false)) << model;
  return calls_of("cudaGraphLaunch") - before;
}

TEST_F(StepGraphs, BatchesOfChangingSizes) {
  [[maybe_unused]] const uint64_t of_resnet = expect_same_on("resnet18", {3, 3, 3, 3, 2, 3}),
                                  of_mlp = expect_same_on("mlp", {4, 4, 4, 4, 3, 4, 3, 3, 3, 3, 4});
#if defined(RINGTAPE_EMULATION_BUILD)
  EXPECT_EQ(of_resnet, 3u) << "steps 3, 4 and 6";
  EXPECT_EQ(of_mlp, 3u + 2u) << "and 9 and 10, of another graph";
#endif
}

TEST_F(StepGraphs, WhatCannotBeRecordedRunsAsEver) {
  const auto trained = [](bool repeated) {
    Shop shop("mlp", repeated, true);
    for (int i = 0; i < 6; ++i) shop.note(shop.run(3, 0.1));
    EXPECT_EQ(shop.step->count(), 6);
    return std::pair(shop.figures, shop.state());
  };
  std::vector<std::string> lines;
  set_log_sink([&](const std::string& line) { lines.push_back(line); });
  const auto plain = trained(false), refused = trained(true);
  set_log_sink({});
  EXPECT_EQ(plain, refused);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_NE(lines[0].find("warning: steps are not recorded as a graph, and slower: a copy from cuda:0 to the host"),
            std::string::npos)
      << lines[0];
}

TEST_F(StepGraphs, PhasesSeenApartAreNotRepeated) {
  const auto trained = [](bool repeated) {
    Shop shop("mlp", repeated);
    for (int i = 0; i < 8; ++i) shop.note(shop.run(2, 0.1, {.apart = i == 4}));
    return std::pair(shop.figures, shop.state());
  };
  [[maybe_unused]] const uint64_t launches = calls_of("cudaGraphLaunch");
  EXPECT_EQ(trained(true), trained(false));
#if defined(RINGTAPE_EMULATION_BUILD)
  EXPECT_EQ(calls_of("cudaGraphLaunch") - launches, 3u) << "steps 3 and 4, and the last";
#endif
}

#if defined(RINGTAPE_EMULATION_BUILD)
// Libraries may choose other algorithms for less aligned operands, and the graph's images are aligned.
TEST_F(StepGraphs, LessAlignedImagesAreNotRepeated) {
  for (const int64_t offset : {0, 64, 1}) {
    Shop shop("mlp", true);
    const Tensor many = rand({2000}, -1, 1, DType::f32, kCuda), y = full({4}, 1, DType::i64, kCuda);
    const uint64_t launches = calls_of("cudaGraphLaunch");
    for (int i = 0; i < 4; ++i) shop.step->run(many.window({4, 8, 8, 3}, {192, 24, 3, 1}, offset), y, 0.1);
    EXPECT_EQ(calls_of("cudaGraphLaunch") - launches, offset == 1 ? 0u : 2u) << offset;
  }
}

TEST_F(StepGraphs, ARepeatedStepMakesFewCalls) {
  Shop plain("resnet18", false), graph("resnet18", true);
  const auto calls = [](Shop& shop, int first) {
    const Tensor x = rand({3, 8, 8, 3}, -1, 1, DType::f32, kCuda);
    const Tensor y = full({3}, 1, DType::i64, kCuda);
    for (int i = 0; i < first; ++i) shop.step->run(x, y, 0.1);
    std::map<std::string, uint64_t> before = emulation::calls(), out;
    shop.step->run(x, y, 0.1);
    for (const auto& [name, count] : emulation::calls())
      if (count > before[name]) out[name] = count - before[name];
    return out;
  };
  const auto all = [](const std::map<std::string, uint64_t>& calls) {
    uint64_t sum = 0;
    std::string text;
    for (const auto& [name, count] : calls) sum += count, text += concat(name, ' ', count, ", ");
    return std::pair(sum, text);
  };
  auto before = calls(plain, 1), after = calls(graph, 3);
  EXPECT_GE(before["enqueue_kernel"], 200u);
  EXPECT_GE(all(before).first, 600u) << all(before).second;
  EXPECT_EQ(after["cudaGraphLaunch"], 1u);
  EXPECT_EQ(after["cudaMemcpyAsync"], 3u) << "images, labels, numbers";
  EXPECT_EQ(after["enqueue_kernel"], 0u);
  EXPECT_EQ(after["cudaMallocFromPoolAsync"], 0u);
  EXPECT_LE(all(after).first, 10u) << all(after).second;
}
#endif

std::vector<std::string> names() {
  std::vector<std::string> out;
  for (const nn::MethodEntry& entry : nn::methods())
    if (entry.repeats) out.emplace_back(entry.name);
  return out;
}

class StepGraphsOf : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(All, StepGraphsOf, testing::ValuesIn(names()), [](const auto& info) { return info.param; });

TrainOptions pretraining(const std::string& method) {
  TrainOptions o = small("sgd");
  o.method.name = method, o.model.name = "mlp";
  test::set(o, {{"hidden", "8"},
                {"projection-hidden", "12"},
                {"projection-dim", "6"},
                {"prediction-hidden", "4"},
                {"prototypes", "5"},
                {"freeze-prototypes", "1"},
                {"queue", "32"},
                {"bn-splits", "4"},
                {"momentum-encoder-end", "1"}});
  o.evaluation.knn.k = 5;
  return o;
}

// Its prototypes, in the first epoch. Ranks then agree on the host which parameters have gradients.
bool freezes(const std::string& method) { return method == "swav" || method == "dino"; }

TEST_P(StepGraphsOf, AMethod) {
  RT_NEEDS_CUDA();
  const TrainOptions o = pretraining(GetParam());
  const bool twice = freezes(GetParam());
  expect_graph_trains_as_without(o, twice ? 4 + 4 : kLaunches, twice ? 2 : 1);
}

// Ranks send embeddings, statistics and rows to each other, too.
TEST_P(StepGraphsOf, AMethodOfTwoRanks) {
  RT_NEEDS_CUDA();
  Ran ran[2];
  [[maybe_unused]] uint64_t launches[] = {calls_of("cudaGraphLaunch"), 0, 0};
  for (const bool graph : {false, true}) {
    const std::string cause = comm::test::run_threads(2, 1, comm::Seconds(120), [&](const comm::Context& context) {
      const Device device{DeviceType::cuda, context.rank % runtime(kCuda).device_count()};
      comm::ProcessGroup group(comm::p2p_transport(context, device));
      TrainOptions o = pretraining(GetParam());
      o.execution.device = device.str(), o.parallel.strategy.name = "ddp";
      test::set(o, {{"bn-splits", "1"}});
      Ran own = train(o, graph, nullptr, group);
      if (group.rank() == 0) ran[graph] = std::move(own);
    });
    ASSERT_EQ(cause, "");
    launches[graph + 1] = calls_of("cudaGraphLaunch");
  }
  EXPECT_EQ(ran[0].figures, ran[1].figures);
  ASSERT_EQ(ran[0].saved.size(), ran[1].saved.size());
  for (size_t i = 0; i < ran[0].saved.size(); ++i) expect_same(ran[0].saved[i], ran[1].saved[i]);
#if defined(RINGTAPE_EMULATION_BUILD)
  EXPECT_EQ(launches[1], launches[0]);
  if (GetParam() == "moco") EXPECT_EQ(launches[2], launches[1]) << "the host orders its rows";
  else EXPECT_GE(launches[2] - launches[1], 2u * 2 * (freezes(GetParam()) ? 4 : 8));
#endif
}

// Its rows are in an order that the host makes for each number of rows.
TEST_F(StepGraphs, MocoOnBatchesOfChangingSizes) {
  TrainOptions o = small("sgd");
  o.method.name = "moco", o.model.name = "mlp";
  test::set(o, {{"projection-hidden", "12"}, {"projection-dim", "6"}, {"queue", "32"}, {"bn-splits", "2"}});
  const auto trained = [&o](bool graph) {
    RunSetup task(resolve(o));
    const auto learner = make_learner(o, task, {all_samples(task.data.train), {}}, 1);
    Step step(*task.model, learner->objective(), o.step, o.execution);
    if (graph) step.record_steps();
    manual_seed(7);
    std::vector<double> out;
    for (int64_t i = 0; const int64_t images : {8, 8, 8, 8, 4, 8, 4, 4, 4, 4, 8}) {
      const auto view = [images] { return rand({images, 32, 32, 3}, -1, 1, DType::f32, kCuda); };
      const Tensors views = {view(), view()};
      learner->begin_step({.step = i++, .steps = 11});
      out.push_back(step.run(views, full({images}, 0, DType::i64, kCuda), 0.05).loss.item());
    }
    for (const Tensor& t : step.replicated())
      for (const double v : values(t)) out.push_back(v);
    return out;
  };
  [[maybe_unused]] const uint64_t launches = calls_of("cudaGraphLaunch");
  EXPECT_EQ(trained(true), trained(false));
#if defined(RINGTAPE_EMULATION_BUILD)
  EXPECT_EQ(calls_of("cudaGraphLaunch") - launches, 3u + 2u) << "steps 3, 4 and 6; 9 and 10, of another graph";
#endif
}

}  // namespace
}  // namespace ringtape
