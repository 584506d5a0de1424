// Gradients summed over ranks while backward() runs.
#include "comm/parallel/reducer.h"

#include <gtest/gtest.h>

#include "autograd/create.h"
#include "autograd/ops.h"
#include "comm/parallel/reduction/powersgd.h"
#include "core/part.h"
#include "nn/nn.h"
#include "tests/support/comm_worlds.h"
#include "tests/support/support.h"
#include "train/optim/flat_parameters.h"

namespace ringtape::comm {
namespace {

using ringtape::test::values;
using test::kThreadWorlds;

constexpr double k256Bytes = 256.0 / (1 << 20);

// powersgd: with rank 2, compressing from the first step.
Selection reduction_of(const char* name) {
  Selection out(reductions(), name);
  out.of("powersgd") = PowerSgdOptions{2, 0};
  return out;
}

// Each reduction, compressing from the first step, and its tolerance for the gradients of Replica.
struct How {
  const char* name;
  double tolerance;
  ReducerOptions options() const {
    return {.bucket_mb = k256Bytes, .small_bytes = 64, .reduction = reduction_of(name)};
  }
};
const How kHows[] = {{"sum", 1e-13}, {"bf16", 1e-3}, {"f16", 1e-4}, {"powersgd", 0.03}};

// A model with its gradients in a reducer's buckets.
struct Replica {
  nn::Sequential model;
  Tensor memory;
  std::unique_ptr<FlatParameters> flat;
  std::unique_ptr<Reducer> reducer;

  explicit Replica(ProcessGroup& group, int64_t out = 3,
                   ReducerOptions options = {.bucket_mb = k256Bytes, .small_bytes = 64}) {
    manual_seed(5);
    model.add<nn::Linear>(4, 7).add<nn::Tanh>().add<nn::Linear>(7, 6).add<nn::Tanh>().add<nn::Linear>(6, out);
    nn::cast_to(model, DType::f64);
    int64_t front = 0;
    flat = std::make_unique<FlatParameters>(model, [&](int64_t size, int64_t parameters, DType dtype, Device) {
      front = ControlWords::size(parameters);
      memory = group.allocate({front + size}, dtype);
      return memory.window({size}, {1}, front);
    });
    std::vector<GradientSlot> slots;
    for (const auto& p : flat->parameters()) slots.push_back({p.name, p.node, front + p.begin, front + p.end});
    reducer = std::make_unique<Reducer>(group, memory, std::move(slots), options);
  }
  // Of the first `layers` modules; 0: no loss.
  Tensor loss(const Tensor& x, size_t layers = 5) {
    Tensor y = x;
    for (size_t i = 0; i < layers; ++i) y = model[i](y);
    return mean(y * y);
  }
  std::vector<std::vector<double>> gradients() {
    std::vector<std::vector<double>> out;
    for (const nn::Named& p : nn::named_parameters(model)) {
      const Tensor g = grad(*p.tensor);
      out.push_back(g.defined() ? values(g) : std::vector<double>{});
    }
    return out;
  }
};

Tensor samples(int64_t n) {
  manual_seed(11);
  return randn({n, 4}, 0, 1, DType::f64);
}

void expect(bool condition, const std::string& what) {
  if (!condition) throw CommError(what);
}

void expect_same(const std::vector<std::vector<double>>& a, const std::vector<std::vector<double>>& b,
                 double tolerance = 1e-13) {
  expect(a.size() == b.size(), "as many parameters");
  for (size_t i = 0; i < a.size(); ++i) {
    expect(a[i].size() == b[i].size(), concat("parameter ", i, " has a gradient on one side alone"));
    for (size_t j = 0; j < a[i].size(); ++j)
      expect(std::abs(a[i][j] - b[i][j]) <= tolerance,
             concat("parameter ", i, "[", j, "]: ", a[i][j], ", expected ", b[i][j]));
  }
}

// Runs f(group, rank) on threads over each transport; returns the cause of a failure.
template <class F> std::string on_ranks(int n, F&& f) {
  std::string all;
  for (const test::ThreadWorld& world : kThreadWorlds) {
    const std::string cause = world.open(n, 1, Seconds(30), [&](std::unique_ptr<Transport> t) {
      set_threads(1);
      ProcessGroup group(std::move(t));
      f(group, group.rank());
    });
    if (all != cause) all += cause;
  }
  return all;
}

// The gradients of the mean loss of all rows, in one process.
std::vector<std::vector<double>> alone(const Tensor& x, size_t layers = 5) {
  std::vector<std::vector<double>> out;
  std::string cause = test::run_threads(1, 1, Seconds(30), [&](Context context) {
    ProcessGroup group(threads_transport(std::move(context)));
    Replica one(group);
    one.flat->zero_grad();
    const Tensor loss = one.loss(x, layers);
    one.reducer->arm(loss, {loss.detach(), x.dim(0), x.dim(0)});
    backward(loss);
    one.reducer->finish();
    out = one.gradients();
  });
  EXPECT_EQ(cause, "");
  return out;
}

TEST(Reducer, SumsAreTheMeanOfAllSamplesHoweverTheyAreSpread) {
  for (const int n : {1, 2, 3, 4})
    for (const int64_t rows : {13, 3}) {
      const Tensor x = samples(rows);
      const auto expected = alone(x);
      EXPECT_SILENT(on_ranks(n, [&](ProcessGroup& group, int r) {
        Replica replica(group);
        for (int step = 0; step < 3; ++step) {
          replica.flat->zero_grad();
          const Part own = part_of(rows, n, r);
          const double share = double(own.size()) / double(rows);
          if (own.size() == 0) {
            replica.reducer->arm({}, {{}, 0, rows});
          } else {
            const Tensor loss = replica.loss(slice(x, 0, own.begin, own.end));
            replica.reducer->arm(loss, {loss.detach() * share, own.size(), rows});
            backward(loss, full({}, share, DType::f64));
          }
          replica.reducer->finish();
          expect_same(replica.gradients(), expected);
        }
        expect(replica.reducer->trace().size() > 3, "several buckets");
        expect(replica.reducer->totals().steps == 3, "steps");
      }));
    }
}

TEST(Reducer, WithoutOverlapAllGoAtOnce) {
  const Tensor x = samples(8);
  const auto expected = alone(x);
  EXPECT_SILENT(on_ranks(2, [&](ProcessGroup& group, int r) {
    Replica replica(group, 3, {.bucket_mb = k256Bytes, .small_bytes = 64, .no_overlap = true});
    const Tensor loss = replica.loss(slice(x, 0, 4 * r, 4 * r + 4));
    replica.reducer->arm(loss, {loss.detach() * 0.5, 4, 8});
    backward(loss, full({}, 0.5, DType::f64));
    replica.reducer->finish();
    expect_same(replica.gradients(), expected);
    expect(replica.reducer->trace().size() == 1, "one bucket");
  }));
}

TEST(Reducer, TellsTheLossAndTheSumsOfTheRiders) {
  for (const How& how : kHows)
    EXPECT_SILENT(on_ranks(3, [&](ProcessGroup& group, int r) {
      Replica replica(group, 3, how.options());
      const Tensor x = samples(6);
      for (const int stopper : {-1, 2, -1}) {
        replica.flat->zero_grad();
        const Tensor loss = replica.loss(x);
        const Reducer::Riders riders{r == stopper ? 1.0 : 0.0, 2, 0, 0, double(r)};
        replica.reducer->arm(loss, {full({}, r + 1.0, DType::f64), 1001, 3003, riders});
        backward(loss);
        replica.reducer->finish();
        expect(replica.reducer->words().loss().item() == 6, "the loss");
        const Reducer::Riders sums{stopper >= 0 ? 1.0 : 0.0, 6, 0, 0, 3};
        expect(replica.reducer->words().riders() == sums, "the sums of the riders");
      }
    })) << how.name;
}

TEST(Reducer, AParameterNoRankUsedKeepsNoGradient) {
  const Tensor x = samples(8);
  const auto some = alone(x, 3);
  for (const How& how : kHows)
    EXPECT_SILENT(on_ranks(2, [&](ProcessGroup& group, int) {
      Replica replica(group, 3, how.options());
      const Tensor loss = replica.loss(x, 3);
      replica.reducer->arm(loss, {loss.detach() * 0.5, 8, 16});
      backward(loss, full({}, 0.5, DType::f64));
      replica.reducer->finish();
      expect_same(replica.gradients(), some, how.tolerance);
      expect(!grad(*nn::named_parameters(replica.model)[4].tensor).defined(), "the last layer was not used");
    })) << how.name;
}

TEST(Reducer, AParameterOneRankUsedHasAGradientOnAll) {
  const Tensor x = samples(8);
  auto expected = alone(x, 3);
  const auto whole = alone(x);
  for (size_t i = 0; i < whole.size(); ++i) {
    expected[i].resize(whole[i].size());
    for (size_t j = 0; j < whole[i].size(); ++j) expected[i][j] = 0.5 * expected[i][j] + 0.5 * whole[i][j];
  }
  for (const How& how : kHows)
    EXPECT_SILENT(on_ranks(2, [&](ProcessGroup& group, int r) {
      Replica replica(group, 3, how.options());
      for (int step = 0; step < 2; ++step) {
        replica.flat->zero_grad();
        const Tensor loss = replica.loss(x, r == 0 ? 3 : 5);
        replica.reducer->arm(loss, {loss.detach() * 0.5, 8, 16});
        backward(loss, full({}, 0.5, DType::f64));
        replica.reducer->finish();
        expect_same(replica.gradients(), expected, how.tolerance);
      }
    })) << how.name;
}

// The control words (16 with six parameters), and two matrices as two factors of rank 2 each.
TEST(Reducer, CountsWhatIsSent) {
  const std::pair<const char*, int64_t> sent[] = {
      {"sum", 8 * (16 + 160)},
      {"bf16", 8 * 16 + 2 * 160},
      {"powersgd", 8 * (16 + 2 * (7 + 4) + 7 + 2 * (6 + 7) + 6 + 3 * 6 + 3)}};
  for (const auto& [name, bytes] : sent)
    EXPECT_SILENT(on_ranks(2, [&, name = name, bytes = bytes](ProcessGroup& group, int) {
      Replica replica(group, 3, {.reduction = reduction_of(name)});
      for (int step = 1; step <= 2; ++step) {
        replica.flat->zero_grad();
        const Tensor loss = replica.loss(samples(4));
        replica.reducer->arm(loss, {loss.detach(), 4, 8});
        backward(loss);
        replica.reducer->finish();
        expect(replica.reducer->totals().bytes == step * bytes,
               concat(name, ": ", replica.reducer->totals().bytes, " bytes in ", step, " steps"));
      }
    }));
}

TEST(Reducer, PartsOfAStepAddUpBeforeTheyAreSent) {
  const Tensor x = samples(12);
  const auto expected = alone(x);
  EXPECT_SILENT(on_ranks(2, [&](ProcessGroup& group, int r) {
    Replica replica(group);
    for (int part = 0; part < 3; ++part) {
      const int64_t begin = 6 * r + 2 * part;
      const Tensor loss = replica.loss(slice(x, 0, begin, begin + 2));
      if (part == 2) replica.reducer->arm(loss, {loss.detach(), 6, 12});
      backward(loss, full({}, 1.0 / 6, DType::f64));
    }
    replica.reducer->finish();
    expect_same(replica.gradients(), expected);
  }));
}

TEST(Reducer, OtherNumbersOfSamplesThanAgreedOn) {
  const std::string cause = on_ranks(2, [](ProcessGroup& group, int r) {
    Replica replica(group);
    const Tensor loss = replica.loss(samples(4));
    replica.reducer->arm(loss, {loss.detach(), 4 + r, 8});
    backward(loss);
    replica.reducer->finish();
  });
  EXPECT_NE(cause.find("the ranks had 9 samples in a step, expected 8; they must read the same data with "
                       "the same --batch-size"),
            std::string::npos)
      << cause;
}

TEST(Reducer, OtherModels) {
  const std::string cause = on_ranks(3, [](ProcessGroup& group, int r) { Replica replica(group, r == 1 ? 5 : 3); });
  EXPECT_NE(cause.find("the parameters differ: rank 1 has '4.weight f64 (5, 6)', rank 0 has '4.weight f64 (3, 6)'"),
            std::string::npos)
      << cause;
}

TEST(Reducer, ASecondBackwardInAStep) {
  const std::string cause = on_ranks(1, [](ProcessGroup& group, int) {
    Replica replica(group);
    const Tensor loss = replica.loss(samples(4));
    replica.reducer->arm(loss, {loss.detach(), 4, 4});
    backward(loss);
    backward(loss);
  });
  EXPECT_NE(
      cause.find("was completed twice in one step; only the last backward() of a step may come after Reducer::arm"),
      std::string::npos)
      << cause;
}

}  // namespace
}  // namespace ringtape::comm
