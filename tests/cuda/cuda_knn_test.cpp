// Nearest neighbours on CUDA, tile by tile, and what features are judged by: as on the CPU.
#include <cmath>

#include "autograd/create.h"
#include "autograd/ops.h"
#include "kernels/fill.h"
#include "kernels/knn.h"
#include "tests/support/cuda_support.h"
#include "tests/support/nearest.h"
#include "tests/support/support.h"
#include "train/evaluation/knn.h"
#include "train/evaluation/linear_probe.h"

namespace ringtape {
namespace {

using test::find_nearest;
using test::Found;
using test::kCuda;
using test::values;
using test::whole_numbers;

TEST(CudaNearest, AreThoseOfTheCpu) {
  RT_NEEDS_CUDA();
  for (const auto& [queries, bank, depth, k] : std::vector<std::array<int64_t, 4>>{{1, 1, 1, 1},
                                                                                   {3, 40, 5, 1},
                                                                                   {5, 40, 5, 40},
                                                                                   {2, 300, 3, 1},
                                                                                   {2, 300, 3, 256},
                                                                                   {2, 1100, 3, 300},
                                                                                   {3, 8500, 2, 7},
                                                                                   {2049, 3, 2, 2},
                                                                                   {0, 4, 2, 2}}) {
    SCOPED_TRACE(concat(queries, " x ", bank, " x ", depth, ", k ", k));
    const Tensor q = whole_numbers({queries, depth}, 1), b = whole_numbers({bank, depth}, 2);
    const Found host = find_nearest(q, b, k), device = find_nearest(to(q, kCuda), to(b, kCuda), k);
    EXPECT_EQ(values(device.products), values(host.products));
    EXPECT_EQ(values(device.rows), values(host.rows));
  }
}

TEST(CudaNearest, SaysHowManyItCanFind) {
  RT_NEEDS_CUDA();
  const int64_t k = kMaxNearest + 1;
  const Tensor q = ones({1, 1}, DType::f32, kCuda), bank = ones({k, 1}, DType::f32, kCuda);
  EXPECT_MENTIONS(test::message_of<UsageError>([&] { find_nearest(q, bank, k); }), "at most 2048");
}

TEST(CudaNearest, NanIsFurthest) {
  RT_NEEDS_CUDA();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Tensor q = ones({1, 1}, DType::f32, kCuda),
               bank = from_host(std::vector<float>{nan, -1, -0.0f, 0, 2}, {5, 1}, kCuda);
  EXPECT_EQ(values(find_nearest(q, bank, 5).rows), (std::vector<double>{4, 2, 3, 1, 0}));
}

TEST(CudaFeatures, AreJudgedAsOnTheCpu) {
  RT_NEEDS_CUDA();
  const auto features = [](int64_t n, uint64_t seed) {
    Features f{Tensor({n, 12}), Tensor({n}, DType::i64)};
    fill_uniform(f.x, RandomState{seed, Stream::test, 0}, -1, 1);
    for (int64_t i = 0; i < n; ++i) f.labels.data<int64_t>()[i] = f.x.data<float>()[12 * i] > 0 ? 2 : 0;
    return f;
  };
  const auto on_cuda = [](const Features& f) { return Features{to(f.x, kCuda), to(f.labels, kCuda)}; };
  const Features bank = features(90, 1), queries = features(40, 2);
  const Tensor host = knn_scores(queries.x, bank.x, bank.labels, 3, {.k = 7});
  test::expect_close(knn_scores(to(queries.x, kCuda), to(bank.x, kCuda), to(bank.labels, kCuda), 3, {.k = 7}), host,
                     1e-4, 1e-9, "votes");
  EXPECT_EQ(knn_tally(on_cuda(queries), on_cuda(bank), 3, {.k = 7}).top1(),
            knn_tally(queries, bank, 3, {.k = 7}).top1());
  const LinearProbe probe{.epochs = 2, .batch_size = 32};
  EXPECT_NEAR(linear_probe(on_cuda(bank), on_cuda(queries), 3, probe).loss(),
              linear_probe(bank, queries, 3, probe).loss(), 1e-5);
}

}  // namespace
}  // namespace ringtape
