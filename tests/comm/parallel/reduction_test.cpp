// How buckets of gradients become sums over the ranks.
#include "comm/parallel/reduction.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "autograd/create.h"
#include "autograd/ops.h"
#include "comm/parallel/reduction/orthonormalize.h"
#include "comm/parallel/reduction/powersgd.h"
#include "core/part.h"
#include "kernels/copy.h"
#include "nn/nn.h"
#include "tests/support/comm_worlds.h"
#include "tests/support/settings.h"
#include "tests/support/support.h"
#include "train/loop/step.h"

namespace ringtape::comm {
namespace {

using ringtape::test::values;
using test::kThreadWorlds;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
const std::vector<Shape> kShapes = {{12, 5, 2}, {7}, {2, 2}, {9, 8}};  // (2, 2): compression never pays

void expect(bool condition, const std::string& what) {
  if (!condition) throw CommError(what);
}

// Runs f(group, dtype) on ranks that are threads over each transport, in f32 and f64; returns the cause of a failure.
template <class F> std::string on_ranks(int n, F&& f) {
  std::string all;
  for (const test::ThreadWorld& world : kThreadWorlds)
    for (const DType dtype : {DType::f32, DType::f64}) {
      const std::string cause = world.open(n, 1, Seconds(30), [&](std::unique_ptr<Transport> t) {
        set_threads(1);
        ProcessGroup group(std::move(t));
        f(group, dtype);
      });
      if (!cause.empty()) all += concat(world.name, ", ", dtype, ": ", cause, "\n");
    }
  return all;
}

// A bucket of gradients, and its reduction.
struct Bucket {
  ProcessGroup& group;
  Gradients gradients;
  Tensor users;
  std::unique_ptr<Reduction> reduction;

  Bucket(ProcessGroup& g, DType dtype, const char* name, PowerSgdOptions options = {},
         const std::vector<Shape>& shapes = kShapes)
      : group(g) {
    int64_t size = 0;
    for (const Shape& s : shapes) size += (s.size() + 15) / 16 * 16;
    gradients.all = group.allocate({size}, dtype);
    users = full({}, group.size(), dtype);
    int64_t begin = 0;
    for (const Shape& s : shapes) {
      gradients.members.push_back({gradients.all.window(s, contiguous_strides(s), begin), users, begin});
      begin += (s.size() + 15) / 16 * 16;
    }
    reduction = find_reduction(name).make(group, gradients, options);
  }

  // Reduces x, and expects the same bits on all ranks.
  Tensors step(const Tensors& x) {
    for (size_t i = 0; i < x.size(); ++i) copy(gradients.members[i].gradient, x[i]);
    reduction->start();
    reduction->proceed();
    reduction->finish();
    const Tensor& y = gradients.all;
    const Tensor everywhere({group.size(), y.size()}, y.dtype());
    group.all_gather(everywhere, y).wait();
    const size_t bytes = size_t(y.size()) * size_of(y.dtype());
    for (int r = 0; r < group.size(); ++r)
      expect(std::memcmp(static_cast<const char*>(View(everywhere).data) + size_t(r) * bytes, View(everywhere).data,
                         bytes) == 0,
             concat("other bits on rank ", r, " than on rank 0"));
    Tensors out;
    for (const auto& member : gradients.members) out.push_back(member.gradient * 1);
    return out;
  }
  int64_t sent() const {
    int64_t bytes = 0;
    for (const Reduction::Sent& s : reduction->sent()) bytes += s.bytes;
    return bytes;
  }
};

// The gradients of rank r: normal numbers, or matrices of rank 1.
Tensors drawn(int r, DType dtype, bool low = false) {
  manual_seed(uint64_t(40 + r));
  Tensors out;
  for (const Shape& s : kShapes) {
    const int64_t rows = s[0], columns = s.size() / rows;
    const Tensor x =
        low && s.rank() > 1 ? randn({rows, 1}, 0, 1, dtype) * randn({1, columns}, 0, 1, dtype) : randn(s, 0, 1, dtype);
    out.push_back(reshape(x, s));
  }
  return out;
}

Tensors sum_of_ranks(int n, DType dtype, bool low = false) {
  Tensors sum = drawn(0, dtype, low);
  for (int r = 1; r < n; ++r) {
    const Tensors x = drawn(r, dtype, low);
    for (size_t i = 0; i < x.size(); ++i) sum[i] = sum[i] + x[i];
  }
  return sum;
}

// |a - b| / |b|.
double difference(const Tensor& a, const Tensor& b) {
  return std::sqrt(sum(square(a - b)).item() / sum(square(b)).item());
}

void expect_near(const Tensors& own, const Tensors& expected, double tolerance) {
  for (size_t i = 0; i < own.size(); ++i) {
    const double apart = difference(own[i], expected[i]);
    expect(apart <= tolerance, concat("gradient ", i, " is apart by ", apart, ", at most ", tolerance));
  }
}

double rounding(DType dtype) { return dtype == DType::f32 ? 2e-6 : 1e-13; }

TEST(Reduction, TheSumIsThatOfAllReduce) {
  for (const int n : {1, 2, 3})
    EXPECT_SILENT(on_ranks(n, [n](ProcessGroup& group, DType dtype) {
      Bucket bucket(group, dtype, "sum");
      expect_near(bucket.step(drawn(group.rank(), dtype)), sum_of_ranks(n, dtype), rounding(dtype));
      expect(bucket.sent() == bucket.gradients.all.size() * int64_t(size_of(dtype)), "bytes");
    }));
}

TEST(Reduction, SixteenBitsAreAsNearAsTheFormatIs) {
  for (const auto& [name, epsilon] : {std::pair("bf16", 0x1p-8), std::pair("f16", 0x1p-11)})
    for (const int n : {1, 2, 3})
      EXPECT_SILENT(on_ranks(n, [&, name = name, epsilon = epsilon](ProcessGroup& group, DType dtype) {
        Bucket bucket(group, dtype, name);
        const Tensors own = bucket.step(drawn(group.rank(), dtype)), expected = sum_of_ranks(n, dtype);
        Tensors sizes = drawn(0, dtype);
        for (Tensor& x : sizes) x = x * 0;
        for (int r = 0; r < n; ++r)
          for (size_t i = 0; i < sizes.size(); ++i) sizes[i] = sizes[i] + abs(drawn(r, dtype)[i]);
        double worst = 0;
        for (size_t i = 0; i < own.size(); ++i) {
          const auto a = values(own[i]), b = values(expected[i]), size = values(sizes[i]);
          for (size_t j = 0; j < a.size(); ++j) worst = std::max(worst, std::abs(a[j] - b[j]) / size[j]);
        }
        expect(worst <= n * epsilon, concat(name, ": apart by ", worst));
        expect(worst > epsilon / 16, concat(name, ": not rounded"));
        expect(bucket.sent() == 2 * bucket.gradients.all.size(), "bytes");
      }));
}

TEST(Reduction, WhatF16CannotHoldIsInfiniteOnAllRanks) {
  EXPECT_SILENT(on_ranks(3, [](ProcessGroup& group, DType dtype) {
    Bucket bucket(group, dtype, "f16");
    Tensors x = drawn(group.rank(), dtype);
    x[1] = full({7}, 3e4, dtype);  // their sum is too large
    if (group.rank() == 1) x[0] = full(kShapes[0], -7e4, dtype);
    const Tensors y = bucket.step(x);
    for (const double v : values(y[0])) expect(v == -kInfinity, "too small for f16");
    for (const double v : values(y[1])) expect(v == kInfinity, "a sum too large for f16");
    for (const double v : values(y[3])) expect(std::isfinite(v), "the others");
  }));
}

TEST(Reduction, PowerSgdIsExactForMatricesOfItsRank) {
  for (const int n : {1, 2, 3})
    for (const int64_t spare : {0, 1})
      EXPECT_SILENT(on_ranks(n, [&](ProcessGroup& group, DType dtype) {
        Bucket bucket(group, dtype, "powersgd", {n + spare, 0});
        const Tensors expected = sum_of_ranks(n, dtype, true);
        for (int step = 0; step < 3; ++step)
          expect_near(bucket.step(drawn(group.rank(), dtype, true)), expected, 20 * rounding(dtype));
      }));
}

TEST(Reduction, PowerSgdSendsWhatItsRankSays) {
  EXPECT_SILENT(on_ranks(2, [](ProcessGroup& group, DType dtype) {
    Bucket bucket(group, dtype, "powersgd", {2, 1});
    bucket.step(drawn(group.rank(), dtype));
    expect(bucket.sent() == bucket.gradients.all.size() * int64_t(size_of(dtype)), "a whole step");
    bucket.step(drawn(group.rank(), dtype));
    expect(bucket.sent() == (2 * (12 + 10) + 7 + 2 * 2 + 2 * (9 + 8)) * int64_t(size_of(dtype)),
           concat("sent ", bucket.sent()));
  }));
}

TEST(Reduction, PowerSgdBeginsWithWholeSteps) {
  EXPECT_SILENT(on_ranks(3, [](ProcessGroup& group, DType dtype) {
    Bucket bucket(group, dtype, "powersgd", {1, 2}), whole(group, dtype, "sum");
    for (const bool compressed : {false, false, true}) {
      const Tensors x = drawn(group.rank(), dtype), own = bucket.step(x), expected = whole.step(x);
      expect(ringtape::test::same_bytes(own[0], expected[0]) == !compressed, concat("compressed: ", compressed));
      expect_near({own[1], own[2]}, {expected[1], expected[2]}, rounding(dtype));
    }
  }));
}

TEST(Reduction, WhatPowerSgdLeavesOutGoesWithLaterSteps) {
  for (const int n : {2, 3})
    EXPECT_SILENT(on_ranks(n, [n](ProcessGroup& group, DType dtype) {
      Bucket bucket(group, dtype, "powersgd", {1, 0});
      const Tensors expected = sum_of_ranks(n, dtype);
      Tensor mean;
      for (int step = 1; step <= 256; ++step) {
        const Tensor y = bucket.step(drawn(group.rank(), dtype))[0];
        mean = step == 1 ? y : mean + (y - mean) * (1.0 / step);
        if (step == 1) expect(difference(mean, expected[0]) > 0.3, "a step is not of full rank");
      }
      expect(difference(mean, expected[0]) < 0.05, concat("the mean is apart by ", difference(mean, expected[0])));
    }));
}

TEST(Reduction, PowerSgdKeepsWhatNobodyLookedAt) {
  EXPECT_SILENT(on_ranks(2, [](ProcessGroup& group, DType dtype) {
    Bucket bucket(group, dtype, "powersgd", {1, 0});
    Tensors x = drawn(group.rank(), dtype);
    const Tensors expected = sum_of_ranks(2, dtype);
    Tensor all = expected[3] * 0;
    for (int step = 0; step < 100; ++step) {
      const bool used = step % 3 != 1;
      copy(bucket.users, full({}, used ? 2 : 0, dtype));
      const Tensors y = bucket.step(x);
      if (used) all = all + y[3];
      if (step == 0) expect(difference(all, expected[3]) > 0.3, "a step is not of full rank");
      x[3] = x[3] * 0;
    }
    expect(difference(all, expected[3]) < 1e-3, concat("apart by ", difference(all, expected[3])));
  }));
}

TEST(Reduction, PowerSgdOutlivesWhatIsNotFinite) {
  for (const double bad : {kInfinity, std::numeric_limits<double>::quiet_NaN()})
    EXPECT_SILENT(on_ranks(2, [bad](ProcessGroup& group, DType dtype) {
      Bucket bucket(group, dtype, "powersgd", {2, 0});
      for (int step = 0; step < 4; ++step) {
        Tensors x = drawn(group.rank(), dtype, true);
        if (step == 1 && group.rank() == 1) copy(slice(reshape(x[0], {120}), 0, 17, 18), full({1}, bad, dtype));
        const Tensors y = bucket.step(x);
        expect(std::isfinite(sum(y[0]).item()) == (step != 1), "an overflow shows, once");
        if (step != 1) expect_near(y, sum_of_ranks(2, dtype, true), 20 * rounding(dtype));
      }
    }));
}

TEST(Reduction, OthersThanThereAre) {
  const std::string message = ringtape::test::message_of<UsageError>([] { find_reduction("f8"); });
  EXPECT_EQ(message, "unknown gradient reduction 'f8'; available: sum bf16 f16 powersgd");
}

TEST(Orthonormalize, Rows) {
  for (const DType dtype : {DType::f32, DType::f64}) {
    manual_seed(3);
    const Tensor x = randn({5, 40}, 0, 1, dtype);
    copy(slice(x, 0, 2, 3), slice(x, 0, 0, 1) * 1e-3 + slice(x, 0, 1, 2) * 1e3);  // linearly dependent on earlier rows
    copy(slice(x, 0, 3, 4), slice(x, 0, 0, 1) + slice(x, 0, 3, 4) * 1e-5);        // nearly dependent
    orthonormalize(x);
    const auto products = values(matmul(x, transpose(x)));
    for (size_t i = 0; i < 5; ++i)
      for (size_t j = 0; j < 5; ++j) {
        const double expected = i == j && products[6 * i] != 0 ? 1 : 0;
        EXPECT_NEAR(products[5 * i + j], expected, dtype == DType::f32 ? 1e-5 : 1e-13)
            << name_of(dtype) << ' ' << i << ' ' << j;
      }
    for (const size_t i : {0, 1, 3, 4}) EXPECT_NE(products[6 * i], 0) << name_of(dtype) << ' ' << i;
  }
}

TEST(Orthonormalize, NothingLeftIsZeroAndNotFiniteIsNaN) {
  const Tensor zero = zeros({2, 6});
  copy(slice(zero, 0, 1, 2), full({1, 6}, 2.0));
  orthonormalize(zero);
  const auto rows = values(zero);
  for (size_t i = 0; i < 12; ++i) EXPECT_NEAR(rows[i], i < 6 ? 0 : std::sqrt(1.0 / 6), 1e-6);
  for (const double bad : {kInfinity, std::numeric_limits<double>::quiet_NaN()}) {
    const Tensor x = full({1, 4}, bad);
    orthonormalize(x);
    for (const double v : values(x)) EXPECT_TRUE(std::isnan(v));
  }
}

// The mean loss of the last 20 of 150 steps of an mlp that learns a linear map, on two ranks; learns from `scale` times
// that loss.
double trained(const char* reduction, double scale = 1) {
  double last = 0;
  const std::string cause = test::run_threads(2, 1, Seconds(60), [&](Context context) {
    set_threads(1);
    ProcessGroup group(threads_transport(std::move(context)));
    manual_seed(3);
    nn::Sequential model;
    model.add<nn::Linear>(10, 32).add<nn::ReLU>().add<nn::Linear>(32, 5);
    TrainOptions o;
    o.step.optimizer.name = "sgd", o.parallel.reducer.reduction.name = reduction;
    ringtape::test::set(o, {{"powersgd-rank", "1"}});
    const Objective entropy = cross_entropy_of(model, nullptr, 0);
    const auto objective = [scale, entropy](const Tensors& x, const Labels& y) {
      Outcome out = entropy(x, y);
      out.loss = out.loss * scale;
      return out;
    };
    Step step(model, objective, o.step, o.execution, group, o.parallel);
    const Tensor map = randn({10, 5});
    for (int i = 0; i < 150; ++i) {
      const Tensor x = randn({32, 10}), scores = matmul(x, map);
      const auto s = values(scores);
      std::vector<int64_t> labels;
      for (auto row = s.begin(); row != s.end(); row += 5) labels.push_back(std::max_element(row, row + 5) - row);
      const Part own = part_of(32, 2, group.rank());
      labels = {labels.begin() + own.begin, labels.begin() + own.end};
      const Tensor part = contiguous(slice(x, 0, own.begin, own.end));
      const Step::Result result = step.run(part, from_host(labels, {own.size()}), 0.05 / scale, {}, {32});
      if (group.rank() == 0 && i >= 130) last += result.loss.item() / scale / 20;
    }
  });
  EXPECT_EQ(cause, "");
  return last;
}

TEST(Reduction, TrainingReachesTheLossOfSums) {
  const double sum = trained("sum");
  EXPECT_LT(sum, 0.5);
  for (const char* name : {"bf16", "f16", "powersgd"}) {
    const double loss = trained(name);
    EXPECT_NEAR(loss, sum, 0.1 * sum) << name;
    EXPECT_NE(loss, sum) << name;
  }
  for (const char* name : {"bf16", "f16"})  // most gradients are below the smallest f16
    EXPECT_NEAR(trained(name, 1e-7), sum, 0.1 * sum) << name;
}

}  // namespace
}  // namespace ringtape::comm
