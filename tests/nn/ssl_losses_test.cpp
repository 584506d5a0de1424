// The losses of self-supervised learning on one rank: values computed elsewhere in
// double, gradients, precision, errors.
#include <cmath>
#include <limits>

#include "autograd/autocast.h"
#include "autograd/create.h"
#include "autograd/gradcheck.h"
#include "autograd/ops.h"
#include "autograd/tape.h"
#include "core/runtime.h"
#include "nn/loss/barlow_twins.h"
#include "nn/loss/dcl.h"
#include "nn/loss/dino.h"
#include "nn/loss/losses.h"
#include "nn/loss/memory_bank.h"
#include "nn/loss/negative_cosine.h"
#include "nn/loss/nt_xent.h"
#include "nn/loss/spread.h"
#include "nn/loss/swav.h"
#include "nn/loss/vicreg.h"
#include "tests/support/support.h"

namespace ringtape::nn {
namespace {

using test::values;

// f(i, j) as a tensor (n, d), f64.
template <class F> Tensor table(int64_t n, int64_t d, F&& f) {
  std::vector<double> x;
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < d; ++j) x.push_back(f(double(i), double(j)));
  return from_host(x, {n, d});
}
const Tensor kA = table(4, 3, [](double i, double j) { return std::sin(1 + 3 * i + j); });
const Tensor kB = table(4, 3, [](double i, double j) { return std::cos(1 + 3 * i + j) + 0.1 * i; });
Tensor bank() {
  return l2_normalize(table(5, 3, [](double i, double j) { return std::sin(2 + 2 * i + j); }));
}
Tensor prototypes() {
  return l2_normalize(table(5, 3, [](double i, double j) { return std::cos(.5 + 1.7 * i + .9 * j); }));
}

// A row of a tensor against given digits.
void expect_row(const Tensor& x, int64_t row, const std::vector<double>& want, double tolerance = 6e-13) {
  const std::vector<double> got = values(slice(x.detach(), 0, row, row + 1));
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], tolerance) << "element " << i;
}

TEST(SslLosses, NtXentToTheDigit) {
  const Tensor a = leaf(kA), b = leaf(kB), loss = nt_xent_loss(a, b, 0.5);
  backward(loss);
  EXPECT_NEAR(loss.item(), 2.609890733086, 6e-13);
  expect_row(grad(a), 0, {-0.189549756687, 0.121904756239, 0.344762871912});
  expect_row(grad(b), 3, {0.250100564228, 0.319607476634, 0.032806079953});
}

TEST(SslLosses, DclToTheDigit) {
  for (const auto& [temperature, value, row_of_a, row_of_b] :
       {std::tuple<double, double, std::vector<double>, std::vector<double>>{
            0.1,
            10.212184599970,
            {-1.191847090516, 0.785185111945, 2.047462631953},
            {1.082604022196, 1.495292313320, 0.112248245041}},
        {0.5,
         2.524472088747,
         {-0.204055933290, 0.131155152377, 0.371656048576},
         {0.262608130285, 0.335525818496, 0.034464089188}}}) {
    const Tensor a = leaf(kA), b = leaf(kB), loss = dcl_loss(a, b, temperature);
    backward(loss);
    EXPECT_NEAR(loss.item(), value, 6e-12);
    expect_row(grad(a), 0, row_of_a, 6e-12);
    expect_row(grad(b), 3, row_of_b, 6e-12);
  }
}

// The same with all scores in memory.
Tensor plain_nt_xent(const Tensor& q, const Tensor& k, int64_t first, double temperature) {
  const int64_t rows = q.dim(0), n = rows / 2;
  const Tensor row = reshape(arange(rows, DType::f64), {rows, 1}),
               own = equal(arange(k.dim(0), DType::f64), row + double(first));
  const Tensor scores = matmul(q, transpose(k)) / temperature;
  const Tensor others = where(own, full({}, -std::numeric_limits<double>::infinity(), q.dtype()), scores);
  const Tensor image = arange(k.dim(0));
  return cross_entropy(others,
                       ringtape::concat({slice(image, 0, first + n, first + rows), slice(image, 0, first, first + n)}));
}

// Over several tiles and blocks of rows, candidates and dimensions; with k that is q and is not,
// and gradients that are wanted and are not.
TEST(SslLosses, NtXentInTilesIsThatOfAllScores) {
  const struct {
    int64_t rows, candidates, dims, first;
    double temperature;
  } cases[] = {{2, 2, 1, 0, 0.5},
               {6, 15, 33, 8, 0.1},
               {250, 250, 17, 0, 0.07},
               {250, 700, 400, 450, 0.5},
               {64, 1000, 129, 1, 0.01}};
  const auto rows_of = [](int64_t n, int64_t d) { return l2_normalize(randn({n, d}, 0, 1, DType::f64)); };
  manual_seed(1);
  for (const auto& c : cases)
    for (const DType dtype : {DType::f64, DType::f32}) {
      const Tensor q = cast(rows_of(c.rows, c.dims), dtype);
      Tensor k = cast(rows_of(c.candidates, c.dims), dtype);
      k = ringtape::concat({slice(k, 0, 0, c.first), q, slice(k, 0, c.first + c.rows, c.candidates)});
      const double tolerance = dtype == DType::f64 ? 1e-12 : 1e-6;
      const auto expect_same = [&](const char* what, auto&& call, bool q_moves, bool k_moves) {
        Tensors got, want;
        for (const bool tiled : {true, false}) {
          const Tensor a = q_moves ? leaf(q) : q, b = k_moves ? leaf(k) : k,
                       loss = call(a, b, tiled ? nt_xent : plain_nt_xent);
          backward(loss);
          for (const Tensor& x : {loss.detach(), q_moves ? grad(a) : Tensor{}, k_moves ? grad(b) : Tensor{}})
            if (x.defined()) (tiled ? got : want).push_back(x);
        }
        ASSERT_EQ(got.size(), 1u + q_moves + k_moves);
        for (size_t i = 0; i < got.size(); ++i)
          test::expect_close(got[i], want[i], tolerance, tolerance,
                             concat(what, ", ", q.shape(), " in ", k.shape(), ' ', dtype, ": ", i));
      };
      const auto among = [&](const Tensor& a, const Tensor& b, auto* loss) {
        return loss(a, b, c.first, c.temperature);
      };
      expect_same("both", among, true, true);
      expect_same("q", among, true, false);
      expect_same("k", among, false, true);
      if (c.candidates > c.rows) continue;
      expect_same(
          "alone", [&](const Tensor& a, const Tensor&, auto* loss) { return loss(a, a, 0, c.temperature); }, true,
          false);
      const auto detached = [&](const Tensor& a, const Tensor&, auto* loss) {
        return loss(a, a.detach(), 0, c.temperature);
      };
      expect_same("detached", detached, true, false);
    }
}

// The 2048 x 6144 scores would be 50 MB; operands, gradients and copies are some times (2048 +
// 6144) x 8 floats, and threads have tiles.
TEST(SslLosses, NtXentKeepsNoScores) {
  manual_seed(1);
  const Tensor q = leaf(l2_normalize(randn({2048, 8}))), others = leaf(l2_normalize(randn({4096, 8})));
  reset_peak_memory({});
  const int64_t before = memory_stats({}).peak;
  backward(nt_xent(q, ringtape::concat({q, others}), 0, 0.5));
  EXPECT_LT(memory_stats({}).peak - before, 2'000'000 + int64_t{200'000} * threads());
}

TEST(SslLosses, MemoryBankToTheDigit) {
  EXPECT_NEAR(memory_bank_loss(kA, kB, bank(), 0.1).item(), 9.571495251456, 6e-13);
}

TEST(SslLosses, NegativeCosineToTheDigit) { EXPECT_NEAR(negative_cosine(kA, kB).item(), 0.080252210321, 6e-13); }

TEST(SslLosses, BarlowTwinsToTheDigit) {
  const struct {
    bool unbiased;
    double loss;
    std::vector<double> gradient;
  } cases[] = {{true, 5.544085931370, {0.062224526537, 0.506815168374, 1.076219944758}},
               {false, 6.998083666334, {0.017100298960, 0.761678912695, 1.629767502521}}};
  for (const auto& c : cases) {
    const Tensor a = leaf(kA), loss = barlow_twins_loss(a, kB, {.unbiased = c.unbiased});
    backward(loss);
    EXPECT_NEAR(loss.item(), c.loss, 6e-13);
    expect_row(grad(a), 0, c.gradient);
    EXPECT_NEAR(barlow_twins_loss(kA, kB, {.scale = 0.1, .unbiased = c.unbiased}).item(), 0.1 * c.loss, 6e-13);
  }
}

TEST(SslLosses, SwavToTheDigit) {
  const auto scores = [](const Tensor& z) { return matmul(l2_normalize(z), transpose(prototypes())); };
  const Tensor a = leaf(scores(kA)), b = leaf(scores(kB)), codes_a = sinkhorn(a), codes_b = sinkhorn(b);
  expect_row(codes_a, 0, {0.854598494929, 2.9e-17, 7.514992023434e-05, 0.144749603431, 5.767517200943e-04});
  const Tensor loss = swav_loss({a, b}, {codes_a, codes_b}, 0.1);
  backward(loss);
  EXPECT_NEAR(loss.item(), 10.035940356055, 6e-13);
  expect_row(grad(a), 0, {0.015469781570, -0.646875000309, 3.705346491653e-06, 1.226868198864, -0.595466685472});
}

// lightly 1.6.0's DINOLoss in its first and in its second call, which follows the centre of the first.
TEST(SslLosses, DinoToTheDigit) {
  Tensor center = zeros({3}, DType::f64);
  for (const auto& [value, row] :
       {std::pair<double, std::vector<double>>{0.419269305157, {0.113445636012, -0.113636767876, 0.000191131865}},
        {0.412934995636, {0.121661791406, -0.121852923213, 0.000191131807}}}) {
    const Tensor a = leaf(kA), small = leaf(kA * 0.5 + kB * 0.25);
    const Tensor loss = swav_loss({a, kB, small}, {dino_codes(kB, center, 0.04), dino_codes(kA, center, 0.04)}, 0.1);
    backward(loss);
    EXPECT_NEAR(loss.item(), value, 6e-13);
    expect_row(grad(a), 0, row);
    center = center * 0.9 + mean(ringtape::concat({kA, kB}), {0}) * 0.1;
  }
}

TEST(SslLosses, VicregToTheDigit) {
  const Tensor a = leaf(kA), loss = vicreg_loss(a, kB);
  backward(loss);
  EXPECT_NEAR(loss.item(), 36.254356894833, 6e-13);
  expect_row(grad(a), 0, {0.303024697770, 5.879034899359, 4.324522296302});
}

TEST(SslLosses, SpreadToTheDigit) {
  EXPECT_NEAR(spread(kA).item(), 0.625683883053, 6e-13);
  EXPECT_EQ(spread(ones({5, 8})).item(), 0);
  EXPECT_FALSE(requires_grad(spread(leaf(kA))));
  manual_seed(1);
  EXPECT_NEAR(spread(randn({2000, 64})).item(), 1 / 8.0, 1e-3);
}

// What a model that maps all images to one place gets: the number to watch for.
TEST(SslLosses, CollapsedEmbeddings) {
  const Tensor z = table(6, 4, [](double, double j) { return 1 + j; });
  EXPECT_NEAR(nt_xent_loss(z, z, 0.5).item(), std::log(11), 1e-12);
  const Tensor same = l2_normalize(table(9, 4, [](double, double j) { return 1 + j; }));
  EXPECT_NEAR(memory_bank_loss(z, z, same, 0.1).item(), std::log(10), 1e-12);
  EXPECT_NEAR(negative_cosine(z, z).item(), -1, 1e-12);
  const Tensor flat = zeros({6, 4}, DType::f64);
  EXPECT_NEAR(swav_loss({flat, flat}, {sinkhorn(flat), sinkhorn(flat)}, 0.1).item(), std::log(4), 1e-12);
  EXPECT_NEAR(spread(z).item(), 0, 1e-15);
}

Tensors views_of(const Loss& loss, DType dtype, int64_t n = 6, int64_t d = 4) {
  Tensors z;
  for (int v = 0; v < loss.views; ++v)
    z.push_back(cast(table(n, d, [v](double i, double j) { return std::sin(1 + v + 1.7 * i * (j + 1) + j) + 0.3 * j; }),
                     dtype));
  return z;
}

// Leaves, and the loss after backward().
std::pair<Tensors, Tensor> follow(const Loss& loss, const Tensors& z) {
  Tensors leaves;
  for (const Tensor& x : z) leaves.push_back(leaf(x));
  const Tensor y = loss.call(leaves, nullptr);
  backward(y);
  return {leaves, y.detach()};
}

// Codes and keys get no gradient, so they have to be the same while a view moves.
TEST(SslLosses, GradientsAgreeWithFiniteDifferences) {
  for (const Loss& loss : losses()) {
    if (loss.over_ranks == OverRanks::balances || loss.over_ranks == OverRanks::local) continue;  // below
    EXPECT_EQ(gradcheck([&](const Tensors& z) { return loss.call(z, nullptr); }, views_of(loss, DType::f64)), "")
        << loss.name;
  }
  const Tensor codes = sinkhorn(kA), low = sinkhorn(kB);
  const auto three_crops = [&](const Tensors& z) { return swav_loss({z[0], z[1], z[0] * z[1]}, {codes, low}, 0.2); };
  EXPECT_EQ(gradcheck(three_crops, {kA, kB}), "");
  EXPECT_EQ(gradcheck([&](const Tensors& z) { return memory_bank_loss(z[0], kB, bank(), 0.2); }, {kA}), "");
  EXPECT_EQ(gradcheck([&](const Tensors& z) { return negative_cosine(z[0], kB); }, {kA}), "");
}

TEST(SslLosses, TargetsGetNoGradient) {
  const Tensor a = leaf(kA), b = leaf(kB), rows = leaf(bank());
  backward(negative_cosine(a, b) + memory_bank_loss(a, b, rows, 0.1));
  EXPECT_TRUE(grad(a).defined());
  EXPECT_FALSE(grad(b).defined() || grad(rows).defined());
  const Tensor codes = leaf(sinkhorn(kA));
  backward(swav_loss({a, b}, {codes, codes}, 0.1));
  EXPECT_FALSE(grad(codes).defined() || requires_grad(sinkhorn(a)));
}

// 16-bit embeddings lose what they are rounded by and no more, under autocast too: the loss
// is that of the same values in double.
TEST(SslLosses, ComputeInFloatWhateverThePrecision) {
  for (const Loss& loss : losses())
    for (const DType dtype : {DType::f32, DType::f16, DType::bf16})
      for (const DType around : {DType::f32, DType::bf16}) {
        const Autocast autocast(around);
        const Tensors given = views_of(loss, dtype);
        Tensors exact;
        for (const Tensor& z : given) exact.push_back(cast(z, DType::f64));
        const auto [leaves, y] = follow(loss, given);
        const auto [want_leaves, want] = follow(loss, exact);
        const std::string what = concat(loss.name, ' ', dtype, " in ", around);
        EXPECT_EQ(y.dtype(), DType::f32) << what;
        EXPECT_EQ(want.dtype(), DType::f64) << what;
        test::expect_close(y, want, 5e-6, 1e-6, what);
        const double rounding = dtype == DType::f32 ? 1e-5 : dtype == DType::f16 ? 1e-3 : 8e-3;
        for (size_t v = 0; v < leaves.size(); ++v) {
          ASSERT_EQ(grad(leaves[v]).defined(), grad(want_leaves[v]).defined()) << what;
          if (!grad(leaves[v]).defined()) continue;
          EXPECT_EQ(grad(leaves[v]).dtype(), dtype) << what;
          test::expect_close(grad(leaves[v]), grad(want_leaves[v]), rounding, rounding, what);
        }
      }
}

TEST(Sinkhorn, BalancesPrototypesAndRows) {
  const Tensor scores = table(12, 3, [](double i, double j) { return std::sin(i + 2 * j); });
  const Tensor codes = sinkhorn(scores, {.epsilon = 0.5, .iterations = 60});
  test::expect_close(sum(codes, {1}), ones({12}, DType::f64), 1e-12, 0, "rows");
  test::expect_close(sum(codes, {0}), full({3}, 4, DType::f64), 1e-9, 0, "prototypes");
}

// exp(x / 0.05) leaves f32 from 4.4 on, and exp(-x / 0.05) vanishes.
TEST(Sinkhorn, TakesAnyFiniteScores) {
  const Tensor scores = from_host<float>({1e4f, -1e4f, 0, -300, -200, -250, 5, 5, 5, 88, -90, 3e4f}, {4, 3});
  for (const double x : values(sinkhorn(scores))) EXPECT_TRUE(x >= 0 && x <= 1) << x;
  const Tensor shifted = table(5, 3, [](double i, double j) { return std::sin(i * j + j); });
  test::expect_close(sinkhorn(shifted + 1000), sinkhorn(shifted), 1e-9, 1e-12, "shifted");
}

TEST(Sinkhorn, AQueueTakesPartAndGetsNoCodes) {
  const Tensor together = sinkhorn(ringtape::concat({kA, kB})), apart = sinkhorn(kA, {}, nullptr, kB);
  EXPECT_EQ(apart.shape(), kA.shape());
  test::expect_close(apart, slice(together, 0, 0, 4), 1e-13, 1e-15, "codes");
}

TEST(SslLosses, SayWhatDoesNotFit) {
  const auto error = [](auto&& f) { return test::message_of<Error>(f); };
  const Tensor one = ones({1, 3}), flat = ones({4});
  for (const Loss& loss : losses()) {
    if (loss.over_ranks == OverRanks::balances) continue;  // below
    Tensors z = views_of(loss, DType::f32);
    z[1] = ones({6, 5});
    EXPECT_MENTIONS(error([&] { loss.call(z, nullptr); }), "(6, 4) and (6, 5)");
    z[1] = Tensor{};
    EXPECT_MENTIONS(error([&] { loss.call(z, nullptr); }), "got");
  }
  EXPECT_EQ(error([&] { nt_xent_loss(kA, flat, 1); }),
            "nt_xent_loss: expected two sets of embeddings (n, D), got (4, 3) and (4,)");
  EXPECT_EQ(error([&] { nt_xent_loss(kA, kB, 0); }), "nt_xent_loss: temperature 0 is not above 0");
  EXPECT_EQ(error([&] { dcl_loss(kA, kB, -1); }), "dcl_loss: temperature -1 is not above 0");
  EXPECT_EQ(error([&] { dcl_loss(one, one, 1); }), "dcl_loss: expected at least 2 images to compare, got 1");
  EXPECT_EQ(error([&] { memory_bank_loss(kA, kB, flat, 1); }), "memory_bank_loss: expected a bank (M, 3), got (4,)");
  EXPECT_EQ(error([&] { memory_bank_loss(kA, kB, bank(), -1); }), "memory_bank_loss: temperature -1 is not above 0");
  EXPECT_EQ(error([&] { sinkhorn(kA, {}, nullptr, flat); }), "sinkhorn: expected a queue (M, 3), got (4,)");
  EXPECT_EQ(error([&] { sinkhorn(kA, {.epsilon = 0}); }), "sinkhorn: epsilon 0 and 3 iterations, both must be above 0");
  EXPECT_EQ(error([&] { swav_loss({kA}, {kA}, 1); }),
            "swav_loss: expected the scores of 2 crops or more and codes of the first of them, got 1 and 1");
  EXPECT_EQ(error([&] {
              swav_loss({kA, bank()}, {kA}, 1);
            }),
            "swav_loss: expected two sets of embeddings (n, D), got (4, 3) and (5, 3)");
  EXPECT_EQ(error([&] { vicreg_loss(one, one); }), "vicreg_loss: a variance needs 2 rows or more, got (1, 3)");
  EXPECT_EQ(error([&] { spread(one); }), "spread: expected embeddings (n, D) of 2 rows or more, got (1, 3)");
}

}  // namespace
}  // namespace ringtape::nn
