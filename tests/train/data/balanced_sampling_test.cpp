// Samples that are drawn with replacement, each class equally often.
#include <cmath>
#include <map>
#include <set>

#include "autograd/create.h"
#include "tests/support/jobs.h"
#include "tests/support/support.h"
#include "train/data/loader.h"
#include "train/data/order.h"

namespace ringtape {
namespace {

using namespace test;

// Images of 4x4 with bytes that differ; 90 % are of class 0, one in 50 is of class 3, none of class 2.
Dataset uneven(int64_t n) {
  Dataset set;
  set.name = "uneven", set.classes = 4, set.mean = {0.5f}, set.deviation = {0.25f};
  set.images = Tensor({n, 4, 4, 1}, DType::u8), set.labels = Tensor({n}, DType::i64);
  for (int64_t i = 0; i < n; ++i) set.labels.data<int64_t>()[i] = i % 50 == 7 ? 3 : i % 10 == 1 ? 1 : 0;
  for (int64_t i = 0; i < 16 * n; ++i) set.images.data<uint8_t>()[i] = uint8_t(i * 7 + i / 16);
  return set;
}

TEST(BalancedSampling, EachClassIsDrawnEquallyOften) {
  const Dataset set = uneven(6000);
  const std::vector<int64_t> samples = all_samples(set);
  const auto draw = [&](uint64_t seed, int64_t epoch) { return balanced(samples, set.labels, 4, seed, epoch); };
  const std::vector<int64_t> drawn = draw(3, 1);
  ASSERT_EQ(drawn.size(), samples.size());
  std::map<int64_t, int64_t> of_class, times;
  for (const int64_t id : drawn) {
    ++of_class[set.labels.data<int64_t>()[sample_of(id)]];
    EXPECT_EQ(id / kDrawn, times[sample_of(id)]++);
  }
  EXPECT_EQ(of_class.size(), 3u);
  for (const auto& [label, count] : of_class) EXPECT_NEAR(double(count), 2000, 5 * std::sqrt(2000 * 2 / 3.0)) << label;
  EXPECT_EQ(draw(3, 1), drawn);
  EXPECT_NE(draw(3, 2), drawn);
  EXPECT_NE(draw(4, 1), drawn);
  for (const int64_t id : balanced({1, 7, 2}, set.labels, 4, 3, 1)) EXPECT_LE(sample_of(id), 7);  // of those given
}

// Batches by number, those of all ranks behind each other.
std::map<int64_t, std::vector<double>> batches(const Dataset& set, int ranks, int workers, int64_t first = 0) {
  std::map<int64_t, std::vector<double>> out;
  for (int rank = 0; rank < ranks; ++rank) {
    const Loader loader(set, all_samples(set),
                        {.batch_size = 12,
                         .balanced = true,
                         .seed = 3,
                         .workers = workers,
                         .augmentation = {.pad = 2, .flip = true},
                         .rank = rank,
                         .ranks = ranks});
    for (const Batch& batch : loader.epoch(1, first)) {
      std::vector<double>& all = out[batch.index];
      for (const double x : values(batch.x)) all.push_back(x);
    }
  }
  return out;
}

TEST(BalancedSampling, TheSameBatchesForAnyRanksAndWorkersAndFromTheMiddle) {
  const Dataset set = uneven(100);
  const auto alone = batches(set, 1, 0);
  EXPECT_EQ(alone.size(), 9u);
  for (const int ranks : {1, 3})
    for (const int workers : {0, 2}) EXPECT_EQ(batches(set, ranks, workers), alone) << ranks << " " << workers;
  auto rest = alone;
  rest.erase(rest.begin(), rest.find(4));
  EXPECT_EQ(batches(set, 3, 2, 4), rest);
}

// The two images of class 3 are drawn some 16 times each.
TEST(BalancedSampling, AnImageThatIsDrawnAgainIsChangedAnew) {
  const Dataset set = uneven(100);
  const std::vector<int64_t> drawn = balanced(all_samples(set), set.labels, 4, 3, 1);
  std::set<std::vector<double>> images;
  size_t at = 0, rare = 0;
  for (const auto& [number, all] : batches(set, 1, 0))
    for (size_t i = 0; i < all.size(); i += 16)
      if (sample_of(drawn[at++]) == 7) images.emplace(all.begin() + int64_t(i), all.begin() + int64_t(i) + 16), ++rare;
  EXPECT_EQ(at, drawn.size());
  EXPECT_GE(rare, 8u);
  EXPECT_GE(images.size(), rare / 2);
}

class BalancedRun : public JobTest {};

TEST_F(BalancedRun, GoesOnWithinAnEpoch) {
  const std::string base =
      "ringtape train --train-size 300 --test-size 50 --val-size 60 --batch-size 20 --hidden 16 --epochs 3 --threads 1 "
      "--device cpu --workers 1 ";
  ASSERT_EQ(run(base + "--run plain"), 0) << log();
  ASSERT_EQ(run(base + "--balanced-sampling --run whole"), 0) << log();
  EXPECT_FALSE(bytes("whole") == bytes("plain"));
  ASSERT_EQ(run(base + "--balanced-sampling --max-steps 20 --run parts"), 0) << log();
  ASSERT_EQ(run("ringtape train --resume --run parts --max-steps 0"), 0) << log();
  EXPECT_TRUE(bytes("parts") == bytes("whole"));
  ASSERT_EQ(run(base + "--balanced-sampling --devices 3 --run ranks"), 0) << log();
  EXPECT_LE(difference("ranks", "whole"), 1e-6);
  EXPECT_EQ(run(base + "--balanced-sampling --shuffle-buffer 50 --run wrong"), 2);
  EXPECT_MENTIONS(log(), "--balanced-sampling: draws from all images, which --shuffle-buffer 50 does not");
}

}  // namespace
}  // namespace ringtape
