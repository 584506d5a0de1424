// Batch normalisation over ranks: together they compute the same as one rank with the whole batch.
#include "comm/parallel/sync_batch_norm.h"

#include <cmath>
#include <numeric>

#include "autograd/checkpoint.h"
#include "autograd/create.h"
#include "kernels/batch_norm.h"
#include "kernels/fill.h"
#include "nn/nn.h"
#include "tests/support/comm_worlds.h"
#include "tests/support/support.h"

namespace ringtape::comm {
namespace {

using ringtape::test::expect_close;
using ringtape::test::same_bytes;
using ringtape::test::values;

constexpr Activation kRelu = Activation::relu;

// Runs f(group) on n ranks; returns the cause of a failure.
template <class F> std::string on_ranks(int n, F&& f, const test::ThreadWorld& world = test::kThreadWorlds[0]) {
  return world.open(n, 1, Seconds(30), [&](std::unique_ptr<Transport> t) {
    ProcessGroup group(std::move(t));
    group.set_deterministic(true);
    f(group);
  });
}

Tensor noise(const Shape& shape, uint64_t seed, double mean = 0, double deviation = 1) {
  Tensor x(shape, DType::f64);
  fill_normal(x, RandomState{seed, Stream::test, 0}, mean, deviation);
  return x;
}

// The rows of a batch: consecutive parts belong to the ranks.
struct Rows {
  std::vector<int64_t> counts;
  int64_t total() const { return std::accumulate(counts.begin(), counts.end(), int64_t{0}); }
  Tensor of(const Tensor& whole, int rank) const {
    const int64_t begin = std::accumulate(counts.begin(), counts.begin() + rank, int64_t{0});
    return contiguous(slice(whole, 0, begin, begin + counts[size_t(rank)]));
  }
};

struct Case {
  std::string name;
  Rows rows;
  Shape row;  // of one row, channels last
  Activation f = Activation::none;
  bool residual = false;
};

// The outputs and the state of a layer in two steps of training and one of evaluation.
struct Outcome {
  Tensors ys, dxs, dresiduals, dws, dbs;
  Tensor mean, var, batches;
};

Shape batch(const Case& c) {
  Shape shape{c.rows.total()};
  for (const int64_t dim : c.row) shape.append(dim);
  return shape;
}

// `part` takes a rank's rows out of the whole batch.
template <class F> Outcome follow(const Case& c, DType dtype, ProcessGroup* group, const F& part) {
  const int64_t channels = c.row[c.row.rank() - 1];
  nn::BatchNorm layer(channels, {0.3, 1e-3});
  nn::cast_to(layer, dtype);
  const DType wide = dtype == DType::f64 ? DType::f64 : DType::f32;
  layer.weight = leaf(cast(noise({channels}, 1, 1, 0.3), wide));
  layer.bias = leaf(cast(noise({channels}, 2), wide));
  layer.synchronize(group);
  Outcome out;
  for (uint64_t step = 0; step < 3; ++step) {
    layer.train(step < 2);
    const auto given = [&](uint64_t seed, double mean) {
      return cast(part(noise(batch(c), 10 * step + seed, mean)), dtype);
    };
    const Tensor x = leaf(given(3, 2)), z = c.residual ? leaf(given(4, 0)) : Tensor{};
    zero_grad(layer.weight), zero_grad(layer.bias);
    const Tensor y = layer(x, c.f, z);
    backward(y, given(5, 0.2));
    out.ys.push_back(y.detach()), out.dxs.push_back(grad(x)), out.dws.push_back(grad(layer.weight)),
        out.dbs.push_back(grad(layer.bias));
    if (c.residual) out.dresiduals.push_back(grad(z));
  }
  out.mean = layer.running().mean, out.var = layer.running().var, out.batches = layer.running().batches;
  return out;
}

void expect_as_one(const Case& c, DType dtype, double tolerance,
                   const test::ThreadWorld& world = test::kThreadWorlds[0]) {
  SCOPED_TRACE(concat(c.name, ' ', dtype, ' ', world.name));
  const size_t n = c.rows.counts.size();
  std::vector<Outcome> ranks(n);
  ASSERT_EQ(on_ranks(
                int(n),
                [&](ProcessGroup& group) {
                  const int r = group.rank();
                  ranks[size_t(r)] = follow(c, dtype, &group, [&](const Tensor& whole) { return c.rows.of(whole, r); });
                },
                world),
            "");
  const Outcome one = follow(c, dtype, nullptr, [](const Tensor& whole) { return whole; });
  const auto check = [&](Tensors Outcome::*what, const char* name, bool sum) {
    for (size_t step = 0; step < (one.*what).size(); ++step) {
      Tensors parts;
      for (const Outcome& rank : ranks) parts.push_back((rank.*what)[step]);
      Tensor whole = sum ? zeros(parts[0].shape(), parts[0].dtype()) : ringtape::concat(parts);
      for (size_t r = 0; sum && r < n; ++r) whole = whole + parts[r];
      expect_close(whole, (one.*what)[step], tolerance, tolerance, concat(name, " of step ", step));
    }
  };
  check(&Outcome::ys, "y", false), check(&Outcome::dxs, "dx", false), check(&Outcome::dresiduals, "dresidual", false);
  check(&Outcome::dws, "dw", true), check(&Outcome::dbs, "db", true);
  expect_close(ranks[0].mean, one.mean, tolerance, tolerance, "running mean");
  expect_close(ranks[0].var, one.var, tolerance, tolerance, "running variance");
  for (const Outcome& rank : ranks) {
    EXPECT_TRUE(same_bytes(rank.mean, ranks[0].mean) && same_bytes(rank.var, ranks[0].var))
        << "the ranks' running statistics differ";
    EXPECT_EQ(rank.batches.item(), 2);
  }
}

const Case kCases[] = {
    {"rows", {{4, 4}}, {5}},
    {"uneven", {{7, 2, 12}}, {3}, kRelu},
    {"one row each", {{1, 1}}, {3}, Activation::none, true},
    {"an empty rank", {{5, 0, 3}}, {17}, kRelu, true},
    {"the first ranks are empty", {{0, 0, 1, 4}}, {4}, kRelu},
    {"images", {{2, 3}}, {3, 4, 6}, kRelu, true},
    {"images and an empty rank", {{0, 3, 1, 2}}, {2, 5, 3}, Activation::none, true},
    {"large", {{600, 401, 130}}, {8, 9, 5}, kRelu, true},
};

TEST(SyncBatchNorm, RanksComputeWhatOneDoesInDouble) {
  for (const Case& c : kCases) expect_as_one(c, DType::f64, 1e-12);
}
TEST(SyncBatchNorm, RanksComputeWhatOneDoesInFloat) {
  for (const Case& c : kCases) expect_as_one(c, DType::f32, c.name == "large" ? 2e-5 : 2e-6);
}
TEST(SyncBatchNorm, RanksComputeWhatOneDoesInSixteenBits) {
  for (const DType dtype : {DType::bf16, DType::f16})
    for (const Case& c : {kCases[3], kCases[5]}) expect_as_one(c, dtype, dtype == DType::bf16 ? 2e-2 : 3e-3);
}
TEST(SyncBatchNorm, OverEveryTransport) {
  for (const test::ThreadWorld& world : test::kThreadWorlds) expect_as_one(kCases[3], DType::f64, 1e-12, world);
}

// A mean that is large compared with the deviation, and parts whose means differ by far more than their rows do.
TEST(SyncBatchNorm, MergedStatisticsKeepTheirDigits) {
  const int64_t parts = 3, c = 4;
  const Tensor own({parts, 2 * c + 1}, DType::f64);
  const Tensor x = noise({60, c}, 1, 10000) + reshape(cast(arange(60), DType::f64), {60, 1}) * 5;
  const int64_t bounds[] = {0, 1, 40, 60};
  for (int64_t p = 0; p < parts; ++p) {
    const Tensor rows = cast(slice(x, 0, bounds[p], bounds[p + 1]), DType::f32), message = slice(own, 0, p, p + 1);
    batch_norm_statistics(message.window({c}, {1}), message.window({c}, {1}, c), contiguous(rows), {});
    message.data<double>()[2 * c] = double(rows.dim(0));
  }
  const Tensor mean_of({c}), var_of({c}), unbiased({c}), count({1});
  batch_norm_merge(mean_of, var_of, unbiased, count, own);
  expect_close(mean_of, mean(x, {0}), 1e-7, 0, "mean");
  expect_close(var_of, var(x, {0}, false, 0), 1e-5, 0, "var");
  expect_close(unbiased, var(x, {0}), 1e-5, 0, "unbiased");
  EXPECT_EQ(count.item(), 60);
}

TEST(SyncBatchNorm, OneRankIsPlainBatchNorm) {
  const Case c{"alone", {{9}}, {3, 5}, kRelu, true};
  Outcome alone;
  ASSERT_EQ(
      on_ranks(1,
               [&](ProcessGroup& group) { alone = follow(c, DType::f32, &group, [](const Tensor& x) { return x; }); }),
      "");
  const Outcome plain = follow(c, DType::f32, nullptr, [](const Tensor& x) { return x; });
  for (size_t step = 0; step < 3; ++step)
    EXPECT_TRUE(same_bytes(alone.ys[step], plain.ys[step]) && same_bytes(alone.dxs[step], plain.dxs[step]) &&
                same_bytes(alone.dws[step], plain.dws[step]));
  EXPECT_TRUE(same_bytes(alone.mean, plain.mean) && same_bytes(alone.var, plain.var));
}

TEST(SyncBatchNorm, TooFewRowsAreAnErrorOfAllRanks) {
  for (const std::vector<int64_t>& counts : {std::vector<int64_t>{1, 0, 0}, {0, 0, 0}}) {
    std::vector<std::string> messages(3);
    EXPECT_SILENT(on_ranks(3, [&](ProcessGroup& group) {
      nn::BatchNorm layer(2);
      layer.synchronize(&group);
      const size_t r = size_t(group.rank());
      messages[r] = ringtape::test::message_of<ShapeError>([&] { layer(ones({counts[r], 2})); });
      if (values(layer.running().mean) != std::vector<double>(2)) throw CommError("the running mean has changed");
      layer(rand({1, 2}));  // and the group still works
    }));
    for (size_t r = 0; r < 3; ++r)
      EXPECT_EQ(messages[r], concat("batch_norm: expected more than 1 value per channel when training, got x (",
                                    counts[r], ", 2) and no values on the other ranks"));
  }
}

// A checkpointed section is called twice, on all ranks; its batch is counted once.
TEST(SyncBatchNorm, Checkpointed) {
  const Rows rows{{3, 6}};
  EXPECT_SILENT(on_ranks(2, [&](ProcessGroup& group) {
    const Tensor x = rows.of(noise({9, 4}, 1), group.rank());
    Tensors gradients, means;
    for (const bool checkpointed : {false, true}) {
      nn::BatchNorm first(4), second(4);
      nn::cast_to(first, DType::f64), nn::cast_to(second, DType::f64);
      first.synchronize(&group), second.synchronize(&group);
      const auto section = [&](const Tensors& t) {
        return second(tanh(first(t[0], kRelu)) * 3, Activation::none, t[0]);
      };
      const Tensor at = leaf(x);
      backward(sum(exp(checkpointed ? checkpoint(section, {at}) : section({at}))));
      gradients.insert(gradients.end(), {grad(at), grad(first.weight), grad(second.bias)});
      means.insert(means.end(),
                   {first.running().mean, first.running().var, second.running().var, second.running().batches});
    }
    for (size_t i = 0; i < 3; ++i) RT_CHECK(same_bytes(gradients[i], gradients[i + 3]));
    for (size_t i = 0; i < 4; ++i) RT_CHECK(same_bytes(means[i], means[i + 4]));
  }));
}

// dL/dx of the sum of all ranks' losses, compared with central differences over the ranks.
TEST(SyncBatchNorm, GradientsAgreeWithFiniteDifferences) {
  const Rows rows{{2, 3}};
  constexpr double eps = 1e-6;
  EXPECT_SILENT(on_ranks(2, [&](ProcessGroup& group) {
    const int own = group.rank();
    const Tensor whole = noise({5, 3}, 1), w = leaf(noise({3}, 2)), b = leaf(noise({3}, 3)), pull = noise({5, 3}, 4);
    const auto loss = [&](const Tensor& x) {
      return sum(square(sync_batch_norm(group, rows.of(x, own), w, b, {}, {}, kRelu)) * rows.of(pull, own));
    };
    const Tensor x = leaf(whole);
    backward(loss(x));
    const Tensor dx = grad(x);  // of this rank's rows
    const auto total = [&](int64_t i, double step) {
      const NoGrad no_grad;
      const Tensor at = from_host(values(whole), whole.shape());
      at.data<double>()[i] += step;
      const Tensor sum = reshape(loss(at), {1});
      group.all_reduce(sum).wait();
      return sum.item();
    };
    for (int64_t i = 0; i < whole.size(); ++i) {
      const double slope = (total(i, eps) - total(i, -eps)) / (2 * eps), given = dx.data<double>()[i];
      if ((i < 6) != (own == 0)) RT_CHECK_EQ(given, 0);
      else
        RT_CHECK(std::abs(slope - given) <= 1e-5 + 1e-3 * std::abs(slope), "element ", i, ": ", given, ", the slope ",
                 slope);
    }
  }));
}

// A whole network on three ranks, one without rows: gradients and running statistics.
TEST(SyncBatchNorm, AResNet) {
  const Rows rows{{3, 0, 2}};
  const Tensor images = noise({5, 8, 8, 3}, 1);
  const Tensor labels = arange(5);
  const auto train = [&](nn::ResNet& net, const Tensor& x, const Tensor& y) {
    const Tensor loss = sum(cross_entropy(net(x), y, 0, LossReduction::none)) / 5;
    backward(loss);
    return loss.detach();
  };
  const auto fresh = [] {
    manual_seed(1);
    auto net = std::make_unique<nn::ResNet>(nn::ResNet::Options{.blocks = {1, 1, 1, 1}});
    nn::cast_to(*net, DType::f64);
    return net;
  };
  const auto one = fresh();
  train(*one, images, labels);
  EXPECT_SILENT(on_ranks(3, [&](ProcessGroup& group) {
    const auto net = fresh();
    RT_CHECK_EQ(nn::synchronize_batch_norm(*net, &group), 12);
    train(*net, rows.of(images, group.rank()), rows.of(labels, group.rank()));
    const auto parameters = nn::named_parameters(*net), expected = nn::named_parameters(*one);
    for (size_t i = 0; i < parameters.size(); ++i) {
      const Tensor g = grad(*parameters[i].tensor);
      group.all_reduce(g).wait();
      if (group.rank() == 0) expect_close(g, grad(*expected[i].tensor), 1e-9, 1e-10, parameters[i].name);
    }
    const auto kept = nn::named_buffers(*net), wanted = nn::named_buffers(*one);
    for (size_t i = 0; i < kept.size(); ++i)
      if (group.rank() == 1) expect_close(*kept[i].tensor, *wanted[i].tensor, 1e-11, 1e-12, kept[i].name);
  }));
}

}  // namespace
}  // namespace ringtape::comm
