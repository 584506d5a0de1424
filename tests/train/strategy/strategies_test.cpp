// Training by several ranks compared with training by one: the same global batches give the same weights.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <future>
#include <limits>
#include <optional>

#include "autograd/create.h"
#include "autograd/ops.h"
#include "core/memory_fill.h"
#include "core/part.h"
#include "nn/nn.h"
#include "tests/support/comm_worlds.h"
#include "tests/support/mpi_ranks.h"
#include "tests/support/settings.h"
#include "tests/support/support.h"
#include "train/loop/step.h"

namespace ringtape {
namespace {

using comm::test::on_group;
using test::same_bytes;

// A training of a few steps on batches of different sizes. The values of the samples grow from first to last, so that
// the samples of all ranks differ.
struct Course {
  const char* model;
  DType dtype;
  int steps;
  bool deterministic = false;
  int64_t accumulate = 1;
  const char* optimizer = "sgd";
  bool nudge = false;  // change each image by the smallest step of its dtype
  int64_t last = 0;    // samples of the last step; 0: as in the others
  bool sync_bn = true;

  std::unique_ptr<nn::Module> make() const {
    manual_seed(3);
    std::unique_ptr<nn::Module> out;
    if (std::string(model) == "mlp") {
      auto mlp = std::make_unique<nn::Sequential>();
      mlp->add<nn::Linear>(10, 16).add<nn::ReLU>().add<nn::Linear>(16, 5);
      out = std::move(mlp);
    } else if (std::string(model) == "tiles") {
      auto net = std::make_unique<nn::Sequential>();
      const nn::Conv2d::Options same{.pad = 1, .bias = false};
      net->add<nn::Conv2d>(3, 16, 3, same).add<nn::BatchNorm>(16).add<nn::ReLU>();
      net->add<nn::Conv2d>(16, 24, 3, same).add<nn::BatchNorm>(24).add<nn::ReLU>();
      net->add<nn::Flatten>().add<nn::Linear>(24 * 8 * 8, 5);
      out = std::move(net);
    } else {
      const bool whole = std::string(model) == "resnet18";
      out = std::make_unique<nn::ResNet>(whole ? nn::ResNet::Options{.classes = 5}
                                               : nn::ResNet::Options{.blocks = {1, 1, 1, 1}, .classes = 5});
    }
    nn::cast_to(*out, dtype);
    return out;
  }
  double lr() const { return std::string(model) == "mlp" ? 0.02 : 1e-3; }
  int64_t samples(int step) const { return last > 0 && step == steps - 1 ? last : step % 3 == 1 ? 7 : 12; }
  Tensor x(int step) const {
    const int64_t n = samples(step);
    const bool rows = std::string(model) == "mlp";
    manual_seed(uint64_t(100 + step));
    // f32: a number of rows of channels that gives whole tiles; see kernels/cpu/batch_norm.cpp
    const int64_t side = std::string(model) == "tiles" ? 8 : dtype == DType::f64 ? 16 : 32;
    const Tensor size = reshape(cast(arange(n), dtype) * 0.3 + 0.2, rows ? Shape{n, 1} : Shape{n, 1, 1, 1});
    return size * randn(rows ? Shape{n, 10} : Shape{n, side, side, 3}, 0.1, 1, dtype) *
           (nudge ? 1 + std::numeric_limits<float>::epsilon() : 1);
  }
  Tensor y(int step) const {
    std::vector<int64_t> labels;
    for (int64_t i = 0; i < samples(step); ++i) labels.push_back((i * 3 + step) % 5);
    return from_host(labels, {samples(step)});
  }

  // The weights and buffers after the last step, of this rank of the group.
  std::vector<Tensor> train(comm::ProcessGroup& group, int replicas = 0, bool persistent = false) const {
    set_threads(std::max(1, replicas));
    const auto model = make();
    comm::Devices devices;
    for (int i = 0; i < replicas; ++i) devices.push_back({DeviceType::cpu, i});
    std::optional<nn::DataParallel> spread;
    if (replicas > 0)
      spread.emplace(
          *model, [this] { return make(); }, devices, nn::DataParallel::Options{persistent, true, deterministic});
    TrainOptions o;
    o.step.optimizer.name = optimizer;
    test::set(o, {{"weight-decay", "0.001"}});
    o.parallel.reducer.bucket_mb = 1, o.parallel.sync_bn = group.size() > 1 && sync_bn;
    o.execution.deterministic = deterministic, o.step.accumulate = accumulate;
    group.set_deterministic(deterministic);
    if (o.parallel.sync_bn) nn::synchronize_batch_norm(*model, &group);
    Step step(*model, cross_entropy_of(*model, spread ? &*spread : nullptr, 0), o.step, o.execution, group, o.parallel);
    for (int i = 0; i < steps; ++i) {
      const Tensor all_x = x(i), all_y = y(i);
      const Part own = part_of(samples(i), group.size(), group.rank());
      step.run(contiguous(slice(all_x, 0, own.begin, own.end)), contiguous(slice(all_y, 0, own.begin, own.end)), lr(),
               {}, {samples(i)});
    }
    std::vector<Tensor> out;
    for (const nn::Named& p : nn::named_parameters(*model)) out.push_back(p.tensor->detach());
    for (const nn::Named& b : nn::named_buffers(*model))
      if (is_float(b.tensor->dtype())) out.push_back(b.tensor->detach());
    return out;
  }
};

using Weights = std::vector<Tensor>;

// |a - b| / |b|, of all values together.
double difference(const Weights& a, const Weights& b) {
  double apart = 0, all = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const std::vector<double> p = test::values(a[i]), q = test::values(b[i]);
    for (size_t j = 0; j < p.size(); ++j) apart += (p[j] - q[j]) * (p[j] - q[j]), all += q[j] * q[j];
  }
  return std::sqrt(apart / all);
}

void expect_near(const Course& course, const Weights& own, const Weights& alone, double tolerance) {
  const double apart = difference(own, alone);
  if (!(apart <= tolerance))
    throw CommError(concat(course.model, " ", course.dtype, ": weights are ", apart, " apart, at most ", tolerance));
}

// Whether to run the expensive tests on every number of ranks; takes minutes.
bool full() { return std::getenv("RINGTAPE_LADDER") != nullptr; }

const std::vector<comm::test::World>& rungs() {
  static const std::vector<comm::test::World> worlds = [] {
    std::vector<comm::test::World> out;
    for (const char* name : {"threads", "processes over shm", "processes over tcp"})
      for (const comm::test::World& world : comm::test::kWorlds)
        if (world.name == std::string(name)) out.push_back(world);
    return out;
  }();
  return worlds;
}

void expect_weights_of_one(const Course& course, double tolerance, bool heavy) {
  const Weights alone = course.train(comm::alone());
  int turn = 0;
  for (const comm::test::World& world : rungs()) {
    ++turn;
    for (const int n : {2, 3, 4}) {
      if (heavy && !full() && n != 1 + turn) continue;
      EXPECT_SILENT(on_group(
          world, n, [&](comm::ProcessGroup& group) { expect_near(course, course.train(group), alone, tolerance); }))
          << world.name << ", " << n << " ranks";
    }
  }
}

TEST(Strategies, DdpGivesTheWeightsOfOneRank) {
  expect_weights_of_one({"mlp", DType::f32, 10}, 1e-6, false);
  expect_weights_of_one({"mlp", DType::f64, 10}, 1e-12, false);
}

TEST(Strategies, DdpGivesTheWeightsOfOneRankWithSynchronizedBatchNorm) {
  expect_weights_of_one({full() ? "resnet18" : "resnet10", DType::f64, full() ? 10 : 2}, 1e-12, true);
  expect_weights_of_one({full() ? "resnet18" : "resnet10", DType::f32, 1}, 1e-6, true);
}

// The last batch has fewer samples than ranks, and the network has enough channels for all algorithms of convolutions.
// Memory that was never written is NaN, so that errors are always visible.
TEST(Strategies, RanksWithoutSamplesAddNothing) {
  const int fill = memory_fill();
  set_memory_fill(kPoisonByte);
  const Course course{.model = "tiles", .dtype = DType::f32, .steps = 3, .last = 1};
  const Weights alone = course.train(comm::alone());
  for (const int n : {2, 3})
    EXPECT_SILENT(on_group(rungs()[0], n,
                           [&](comm::ProcessGroup& group) { expect_near(course, course.train(group), alone, 2e-6); }))
        << n << " ranks";
  EXPECT_LE(difference(course.train(comm::alone(), 2), alone), 2e-6);
  set_memory_fill(fill);
}

TEST(Strategies, DpGivesTheWeightsOfOneDevice) {
  const char* const resnet = full() ? "resnet18" : "resnet10";
  for (const Course& course : {Course{"mlp", DType::f32, 10},
                               {"mlp", DType::f64, 10},
                               {resnet, DType::f64, full() ? 10 : 2},
                               {resnet, DType::f32, 1}}) {
    const bool heavy = std::string(course.model) != "mlp";
    const Weights alone = course.train(comm::alone());
    for (const int n : {2, 3, 4})
      for (const bool persistent : {false, true}) {
        if (heavy && !full() && n != (persistent ? 2 : 3)) continue;
        EXPECT_LE(difference(course.train(comm::alone(), n, persistent), alone),
                  course.dtype == DType::f64 ? 1e-12 : 1e-6)
            << course.model << " " << name_of(course.dtype) << " on " << n;
      }
  }
}

TEST(Strategies, DpAddsUpAsDdpDoes) {
  for (const Course& course : {Course{"mlp", DType::f32, 10, true}, Course{"resnet10", DType::f32, 2, true}}) {
    const Weights dp = course.train(comm::alone(), 3);
    EXPECT_SILENT(on_group(rungs()[0], 3, [&](comm::ProcessGroup& group) {
      const Weights own = course.train(group);
      for (size_t i = 0; i < own.size(); ++i)
        if (!same_bytes(own[i], dp[i])) throw CommError(concat(course.model, ": tensor ", i, " has other bits"));
    }));
  }
}

// Devices within ranks. A forked rank does not have the replica threads of this process, so it uses a new thread
// without any.
TEST(Strategies, Ddp2GivesTheWeightsOfOneDevice) {
  const Course course{"mlp", DType::f64, 10};
  const Weights alone = course.train(comm::alone());
  for (const comm::test::World& world : rungs())
    EXPECT_SILENT(on_group(world, 2, [&](comm::ProcessGroup& group) {
      std::async(std::launch::async, [&] { expect_near(course, course.train(group, 2), alone, 1e-12); }).get();
    })) << world.name;
}

TEST(Strategies, LarsGivesTheWeightsOfOneDevice) {
  const Course course{.model = "mlp", .dtype = DType::f64, .steps = 10, .optimizer = "lars"};
  const Weights alone = course.train(comm::alone());
  EXPECT_LE(difference(course.train(comm::alone(), 3), alone), 1e-12);
  EXPECT_EQ(on_group(rungs()[0], 3,
                     [&](comm::ProcessGroup& group) { expect_near(course, course.train(group), alone, 1e-12); }),
            "");
}

// In f32 the weights of ResNets drift apart after any change of the last bit: a ReLU whose input differs from 0 only by
// rounding opens or closes, and the values that it passes are not small. This depends on the CPU: 7e-8 and 1.1e-6 were
// measured, so the bound is 1e-5. Ranks that normalise only their own batches, which is wrong here, differ by more than
// 1e-4.
TEST(Strategies, DdpIsAsNearAsF32Is) {
  constexpr double kRelus = 1e-5;
  const Course course{.model = full() ? "resnet18" : "resnet10", .dtype = DType::f32, .steps = full() ? 10 : 2};
  Course nudged = course, alike = course;
  nudged.nudge = true, alike.sync_bn = false;
  const Weights alone = course.train(comm::alone());
  const double bit = difference(nudged.train(comm::alone()), alone);
  EXPECT_GT(bit, 0);
  EXPECT_LT(bit, kRelus);
  EXPECT_SILENT(on_group(rungs()[0], 2, [&](comm::ProcessGroup& group) {
    expect_near(course, course.train(group), alone, kRelus);
    const double apart = difference(alike.train(group), alone);
    if (!(apart > 10 * kRelus)) throw CommError(concat("without synchronisation: ", apart, " apart"));
  }));
}

TEST(Strategies, DeterministicIsBitwiseTheSameOverEveryTransport) {
  for (const Course& course :
       {Course{"mlp", DType::f32, 10, true}, Course{full() ? "resnet18" : "resnet10", DType::f32, 2, true}}) {
    Weights first;
    EXPECT_SILENT(on_group(rungs()[0], 3, [&](comm::ProcessGroup& group) {
      const Weights own = course.train(group);
      if (group.rank() == 0) first = own;
    }));
    for (const comm::test::World& world : rungs())
      EXPECT_SILENT(on_group(world, 3, [&](comm::ProcessGroup& group) {
        const Weights own = course.train(group);
        for (size_t i = 0; i < own.size(); ++i)
          if (!same_bytes(own[i], first[i])) throw CommError(concat(course.model, ": tensor ", i, " has other bits"));
      })) << world.name;
  }
}

// One of the ranks that mpirun starts for the test below.
TEST(StrategiesOverMpi, DISABLED_Rank) {
  test::as_mpi_rank(comm::Seconds(60), [](const comm::Context& context) {
    const auto train = [&](const Course& course, const std::string& transport) {
      comm::Context own = context;
      own.store = comm::prefix_store(context.store, concat(transport, course.deterministic));
      comm::ProcessGroup group(comm::make_transport(transport, std::move(own)));
      return course.train(group);
    };
    const Course course{"mlp", DType::f32, 10}, ordered{"mlp", DType::f32, 10, true};
    EXPECT_LE(difference(train(course, "mpi"), course.train(comm::alone())), 1e-6);
    const Weights mpi = train(ordered, "mpi"), tcp = train(ordered, "tcp");
    for (size_t i = 0; i < mpi.size(); ++i) EXPECT_TRUE(same_bytes(mpi[i], tcp[i])) << i;
  });
}

TEST(StrategiesOverMpi, GiveTheWeightsOfOneRankAndThoseOverTcp) {
  if (!test::has_mpirun()) GTEST_SKIP() << "there is no mpirun (apt-get install openmpi-bin)";
  test::run_under_mpirun(2, "StrategiesOverMpi");
}

TEST(Strategies, PartsOfABatchAreAsRanks) {
  Course course{"mlp", DType::f32, 10, true};
  EXPECT_SILENT(on_group(rungs()[0], 3, [&](comm::ProcessGroup& group) {
    const Weights spread = course.train(group);
    Course parts = course;
    parts.accumulate = 3;
    const Weights alone = parts.train(comm::alone());
    if (difference(spread, alone) > 1e-7) throw CommError(concat("apart by ", difference(spread, alone)));
  }));
  course.accumulate = 2;
  expect_weights_of_one(course, 1e-6, false);
}

}  // namespace
}  // namespace ringtape
