// Steps whose batch consists of fixed shares: the same bytes for any number of ranks.
#include <gtest/gtest.h>

#include "autograd/create.h"
#include "autograd/ops.h"
#include "core/part.h"
#include "nn/nn.h"
#include "tests/support/comm_worlds.h"
#include "tests/support/settings.h"
#include "tests/support/support.h"
#include "tests/support/what_is_left.h"
#include "train/data/loader.h"

namespace ringtape {
namespace {

using comm::test::on_group;
using test::add_files, test::copy_of, test::expect_same;

// Some shares use a layer that others do not; running statistics and dropout are in it.
struct Net : nn::Module {
  nn::Conv2d conv{3, 12, 3, nn::Conv2d::Options{.pad = 1, .bias = false}};
  nn::BatchNorm norm{12};
  nn::Linear wide{12 * 6 * 6, 70}, odd{70, 5}, some{70, 5}, none{4, 4};
  double p;
  explicit Net(double dropout) : p(dropout) {}
  Tensor forward(const Tensor& x) override { return outputs(x, false); }
  Tensor outputs(const Tensor& x, bool more) {
    const Tensor h = ringtape::dropout(relu(wide(reshape(relu(norm(conv(x))), {x.dim(0), 12 * 6 * 6}))), p);
    return more ? odd(h) + some(h) : odd(h);
  }
  void visit(nn::Visitor& v) override {
    v.child("conv", conv), v.child("norm", norm), v.child("wide", wide), v.child("odd", odd), v.child("some", some),
        v.child("none", none);
  }
  std::string str() const override { return "Net"; }
};

struct Training {
  int64_t shares = 4;
  std::string optimizer = "adam", precision = "f32";
  double clip = 0, ema = 0, dropout = 0.3;
  DType dtype = DType::f32;

  std::string str() const {
    return concat(shares, " shares, ", optimizer, ", ", precision, ", ", dtype, ", clip ", clip, ", ema ", ema);
  }

  test::Left run(comm::ProcessGroup& group) const {
    set_threads(1);
    manual_seed(3);
    Net net(dropout);
    nn::cast_to(net, dtype);
    TrainOptions o;
    o.step.optimizer.name = optimizer;
    o.step.clip_grad_norm = clip, o.step.ema = ema;
    o.execution.precision = precision;
    o.parallel.shares = shares, o.parallel.reducer.bucket_mb = 0.03;
    const auto objective = [&](const Tensors& images, const Labels& labels) -> Outcome {
      const Tensor logits = net.outputs(images[0], labels.y.data<int64_t>()[0] % 2 == 1);
      return {.loss = cross_entropy(logits, labels.y), .auxiliary_loss = {}, .logits = logits.detach(), .spread = {}};
    };
    Step step(net, objective, o.step, o.execution, group, o.parallel);
    test::Left out;
    for (int i = 0; i < 4; ++i) {
      const int64_t samples = i == 3 ? 2 : 9 + i;  // in the last step some shares have none
      const Part own = own_rows(samples, {.rank = group.rank(), .ranks = group.size(), .shares = shares});
      manual_seed(uint64_t(100 + i));
      const Tensor x = randn({samples, 6, 6, 3}, 0, i == 1 ? 40 : 1, dtype);
      std::vector<int64_t> labels;
      for (int64_t j = own.begin; j < own.end; ++j) labels.push_back((j + i) % 5);
      manual_seed(7);
      const RandomState before = default_generator().state();
      const Step::Result r = step.run(contiguous(slice(x, 0, own.begin, own.end)), from_host(labels, {own.size()}),
                                      0.01, {}, {.samples = samples, .counts = true});
      EXPECT_EQ(default_generator().state().counter, before.counter);
      out.emplace(concat("loss ", i), r.loss);
      out.emplace(concat("right ", i), from_host(std::vector<int64_t>{r.right.top1, r.right.top5}, {2}));
    }
    add_files(out, step);
    for (const nn::Named& b : nn::named_buffers(net)) out.emplace("buffer " + b.name, copy_of(*b.tensor));
    return out;
  }
};

const std::vector<Training> kTrainings = {
    {.shares = 1},
    {.shares = 2, .optimizer = "sgd"},
    {.shares = 3, .clip = 0.1},
    {.shares = 4, .clip = 0.1, .ema = 0.9},
    {.shares = 5, .precision = "bf16"},
    {.shares = 6, .precision = "f16"},
    {.shares = 7, .optimizer = "lars", .dtype = DType::f64},
    {.shares = 12, .optimizer = "adamw"},
};

TEST(Shares, TheSameBytesForAnyNumberOfRanks) {
  for (const Training& training : kTrainings) {
    const test::Left alone = training.run(comm::alone());
    for (const comm::test::World& world : comm::test::kWorlds) {
      const std::string_view name = world.name;
      if (name.starts_with("processes") || name == "simulated") continue;  // whose results stay there, with one group
      for (int ranks = 2; ranks <= std::min<int64_t>(training.shares, 7); ++ranks) {
        const std::string failure = on_group(world, ranks, [&](comm::ProcessGroup& group) {
          expect_same(alone, training.run(group), concat(training.str(), ", ", ranks, " ranks over ", world.name));
        });
        ASSERT_EQ(failure, "") << training.str();
      }
    }
  }
}

// As an ordinary step of so many ranks, but for the order of sums, and running statistics of all shares instead of
// rank 0's.
TEST(Shares, AreAsRanksOfTheirOwn) {
  const Training training{.shares = 4, .dropout = 0, .dtype = DType::f64};
  const test::Left alone = training.run(comm::alone());
  const std::string failure = on_group(comm::test::kWorlds[0], 4, [&](comm::ProcessGroup& group) {
    Training plain = training;
    plain.shares = 0;
    const test::Left ranks = plain.run(group);
    for (const auto& [name, x] : alone) {
      if (name.find("norm.running") != name.npos || name.find("norm.num") != name.npos || name.starts_with("right"))
        continue;
      const auto expected = test::values(ranks.at(name)), found = test::values(x);
      ASSERT_EQ(expected.size(), found.size()) << name;
      for (size_t i = 0; i < found.size(); ++i) ASSERT_NEAR(found[i], expected[i], 1e-9) << name << " " << i;
    }
  });
  EXPECT_EQ(failure, "");
}

TEST(Shares, SamplesOfARankFollowEachOther) {
  for (const int64_t shares : {0, 1, 3, 4, 8})
    for (int ranks = 1; ranks <= std::max<int64_t>(shares, 1); ++ranks)
      for (const int64_t batch : {0, 1, 7, 64}) {
        int64_t at = 0;
        for (int rank = 0; rank < ranks; ++rank) {
          const Part own = own_rows(batch, {.rank = rank, .ranks = ranks, .shares = shares});
          EXPECT_EQ(own.begin, at);
          at = own.end;
        }
        EXPECT_EQ(at, batch);
      }
}

}  // namespace
}  // namespace ringtape
