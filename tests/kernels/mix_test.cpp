// Mixtures of images on the CPU, and what is drawn for them.
#include "kernels/mix.h"

#include <cmath>

#include "tests/support/isas.h"
#include "tests/support/support.h"

namespace ringtape {
namespace {

Tensor waves(const Shape& shape) {
  Tensor out(shape);
  for (int64_t i = 0; i < out.size(); ++i) out.data<float>()[i] = std::sin(float(i) * 0.37f) * 3;
  return out;
}

TEST(Mix, IsTheWeightedMeanOutsideOfThePart) {
  const Tensor x = waves({5, 6, 7, 3});
  const Mixture cases[] = {{.share = 0.625},
                           {.share = 0.3000030517578125, .part = {1, 2, 3, 4}},
                           {.share = 1, .part = {0, 0, 6, 7}},
                           {.share = 1, .part = {5, 6, 1, 1}},
                           {.share = 0},
                           {}};
  for (const Mixture& m : cases) {
    Tensor want({4, 6, 7, 3});
    for (int64_t i = 0; i < want.size(); ++i) {
      const int64_t row = i / 21 % 6 - m.part.top, column = i / 3 % 7 - m.part.left;
      const double other = double(x.data<float>()[i]), own = double(x.data<float>()[i + 126]);
      const bool inside = row >= 0 && row < m.part.height && column >= 0 && column < m.part.width;
      want.data<float>()[i] = inside ? float(other) : float(m.share * own + (1 - m.share) * other);
    }
    test::with_every_isa([&] {
      for (int threads : {1, 3}) {
        Tensor y({4, 6, 7, 3});
        test::with_threads(threads, [&] { return mix(y, x, m), 0; });
        EXPECT_TRUE(test::same_bytes(y, want)) << m.share;
      }
    });
  }
}

// Mean and variance of Beta(alpha, alpha): 1/2 and 1 / (8 alpha + 4).
TEST(Mix, SharesAreFromABeta) {
  constexpr int64_t kDraws = 20'000;
  for (const double alpha : {0.05, 0.2, 1.0, 3.0, 50.0}) {
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < kDraws; ++i) {
      const Mixture m = draw_mixture({.mixup = alpha}, 32, 32, 1, 2, i);
      ASSERT_TRUE(m.share >= 0 && m.share <= 1 && m.share == m.label_share && m.part.width == 0);
      ASSERT_EQ(m.share * 65536, std::round(m.share * 65536));
      sum += m.share, squares += m.share * m.share;
    }
    const double mean = sum / kDraws, variance = 1 / (8 * alpha + 4);
    EXPECT_NEAR(mean, 0.5, 4 * std::sqrt(variance / kDraws)) << alpha;
    EXPECT_NEAR(squares / kDraws - mean * mean, variance, 0.05 * variance) << alpha;
  }
}

TEST(Mix, APartHasTheRestOfTheShare) {
  constexpr int64_t kDraws = 20'000;
  double labels = 0, cut = 0;
  for (int64_t i = 0; i < kDraws; ++i) {
    const Mixture m = draw_mixture({.cutmix = 1}, 40, 25, 1, 2, i);
    ASSERT_EQ(m.share, 1);
    ASSERT_TRUE(m.part.top >= 0 && m.part.left >= 0 && m.part.top + m.part.height <= 40 &&
                m.part.left + m.part.width <= 25);
    ASSERT_NEAR(m.label_share, 1 - double(m.part.height * m.part.width) / 1000, 0x1p-16);
    labels += m.label_share, cut += m.part.height > 0 && m.part.width > 0;
  }
  // Without the border a part would have half of the area; what is outside of the image is a quarter to a third of it.
  EXPECT_NEAR(labels / kDraws, 0.7, 0.04);
  EXPECT_GT(cut / kDraws, 0.9);
}

TEST(Mix, OneOfBothIsChosenForEachBatch) {
  int64_t cuts = 0, different = 0;
  for (int64_t i = 0; i < 4000; ++i) {
    const Mixture m = draw_mixture({.mixup = 0.2, .cutmix = 1}, 32, 32, 5, 0, i);
    const Mixture later = draw_mixture({.mixup = 0.2, .cutmix = 1}, 32, 32, 5, 1, i);
    cuts += m.share == 1 && m.label_share < 1, different += m.label_share != later.label_share;
  }
  EXPECT_NEAR(cuts, 1950, 160);
  EXPECT_GT(different, 3000);
}

TEST(Mix, RefusesWhatCannotBe) {
  EXPECT_MENTIONS(test::message_of<UsageError>([] { draw_mixture({.mixup = -1}, 8, 8, 0, 0, 0); }), "alpha of -1");
  EXPECT_EQ(draw_mixture({}, 8, 8, 0, 0, 0).share, 1);
}

}  // namespace
}  // namespace ringtape
