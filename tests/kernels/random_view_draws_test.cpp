// What is drawn for random views: how often, and where torchvision would crop; what is refused.
#include <array>
#include <cmath>
#include <numeric>

#include "kernels/random_view.h"
#include "kernels/random_view_pixels.h"
#include "tests/support/support.h"

namespace ringtape {
namespace {

// Of counts that should be equal; below this once in 10,000 for k counts (Wilson and Hilferty).
void expect_uniform(const std::vector<int64_t>& counts, const std::string& what) {
  const double k = double(counts.size() - 1), n = double(std::accumulate(counts.begin(), counts.end(), int64_t{0}));
  double chi_square = 0;
  for (int64_t count : counts)
    chi_square += std::pow(double(count) - n / double(counts.size()), 2) / (n / double(counts.size()));
  EXPECT_LT(chi_square, k * std::pow(1 - 2 / (9 * k) + 3.72 * std::sqrt(2 / (9 * k)), 3)) << what;
}

struct Histogram {
  explicit Histogram(double low, double high, size_t parts = 20) : low(low), high(high), counts(parts) {}
  void add(double x) {
    const auto part = int64_t((x - low) / (high - low) * double(counts.size()));
    ++counts[size_t(std::clamp<int64_t>(part, 0, int64_t(counts.size()) - 1))];
  }
  double low, high;
  std::vector<int64_t> counts;
};

TEST(RandomView, DrawsAreDistributedAsTheyShould) {
  const RandomViewParams p(
      {.crop_low = 0.1, .crop_high = 0.3, .contrast = 0.6, .saturation = 0.8, .hue = 0.5, .blur = 0.3, .solarize = 0.1},
      1, 2, 3, false);
  constexpr int64_t kDraws = 40'000;
  Histogram area(0.1, 0.3), aspect(-std::log(4.0 / 3), std::log(4.0 / 3)), top(0, 1), left(0, 1), sigma(0.1, 2),
      orders(0, 24, 24);
  Histogram factors[3] = {Histogram(0.6, 1.4), Histogram(0.4, 1.6), Histogram(0.2, 1.8)};
  int64_t flip = 0, jitter = 0, gray = 0, blur = 0, solarize = 0, blurred_and_flipped = 0;
  std::vector<int64_t> turns(256);
  for (int64_t i = 0; i < kDraws; ++i) {
    const RandomView v = draw_view(p, i, 4000, 4000);  // large, for fine sides; nothing sticks out
    area.add(double(v.height * v.width) / 16e6), aspect.add(std::log(double(v.width) / double(v.height)));
    top.add((double(v.top) + 0.5) / double(4001 - v.height)), left.add((double(v.left) + 0.5) / double(4001 - v.width));
    for (int k = 0; k < 3; ++k) factors[k].add(double(v.factor[k]) / (1 << kFactorBits));
    int64_t order = 0;
    for (int k = 0; k < 4; ++k) {
      int64_t smaller = 0;
      for (int j = k + 1; j < 4; ++j) smaller += v.order[j] < v.order[k];
      order = order * (4 - k) + smaller;
    }
    orders.add(double(order) + 0.5);
    if (v.sigma > 0) sigma.add(double(v.sigma) / (1 << kSigmaBits));
    flip += v.flip, jitter += v.jitter, gray += v.gray, blur += v.sigma > 0, solarize += v.solarize;
    blurred_and_flipped += v.flip && v.sigma > 0;
    ++turns[size_t(v.turn)];
  }
  expect_uniform(area.counts, "area"), expect_uniform(aspect.counts, "aspect"), expect_uniform(top.counts, "top");
  expect_uniform(left.counts, "left"), expect_uniform(sigma.counts, "sigma"),
      expect_uniform(orders.counts, "order of the four");
  for (int k = 0; k < 3; ++k) expect_uniform(factors[k].counts, concat("factor ", k));
  const auto expect_share = [](int64_t count, double share) {
    EXPECT_NEAR(double(count) / kDraws, share, 4 * std::sqrt(share * (1 - share) / kDraws));
  };
  expect_share(flip, 0.5), expect_share(jitter, 0.8), expect_share(gray, 0.2), expect_share(blur, 0.3),
      expect_share(solarize, 0.1);
  expect_share(blurred_and_flipped, 0.15);
  expect_share(turns[0], 2.0 / 255);  // rounding to zero takes from both sides
  turns.erase(turns.begin());
  turns.erase(turns.begin() + 126, turns.begin() + 129);  // the half turn, from both sides, seldom whole
  expect_uniform(turns, "hue");
}

// torchvision's RandomResizedCrop.get_params in f64, from the same numbers.
TEST(RandomView, CropsAreTorchvisions) {
  const RandomViewParams p(ViewAugmentation{}, 7, 3, 1, false);
  constexpr int64_t kDraws = 20'000;
  int64_t different = 0, whole = 0;
  for (auto [height, width] : {std::pair{32.0, 32.0}, {48.0, 96.0}, {64.0, 30.0}})
    for (int64_t i = 0; i < kDraws; ++i) {
      const RandomView v = draw_view(p, i, int64_t(height), int64_t(width));
      ASSERT_TRUE(v.top >= 0 && v.height > 0 && v.top + v.height <= int64_t(height)) << "sample " << i;
      ASSERT_TRUE(v.left >= 0 && v.width > 0 && v.left + v.width <= int64_t(width)) << "sample " << i;
      double w = 0, h = 0;
      bool found = false;
      for (uint64_t attempt = 0; attempt < 10 && !found; ++attempt) {
        const Philox4 r = philox(p.seed, p.stream, (uint64_t(i) << 4) + attempt);
        const double area = height * width * (0.08 + 0.92 * double(r.x[0]) * 0x1p-32);
        const double aspect = std::exp(std::log(0.75) + 2 * std::log(4.0 / 3) * double(r.x[1]) * 0x1p-32);
        w = std::nearbyint(std::sqrt(area * aspect)), h = std::nearbyint(std::sqrt(area / aspect));
        found = w > 0 && w <= width && h > 0 && h <= height;
      }
      if (!found)
        w = std::min(width, std::nearbyint(height * 4 / 3)), h = std::min(height, std::nearbyint(width * 4 / 3));
      if (!found) {
        ++whole;
        EXPECT_EQ(v.left, int64_t(width - w) / 2);
        EXPECT_EQ(v.top, int64_t(height - h) / 2);
      }
      different += double(v.width) != w || double(v.height) != h;
    }
  EXPECT_LE(different, 3);  // 2^-15 of a pixel beside a half, in fewer than one of 10,000
  EXPECT_GT(whole, 0);
  const RandomViewParams all({.crop_low = 1}, 1, 0, 0, false);
  using Sizes = std::array<int64_t, 6>;
  for (auto [height, width, top, left, h, w] :
       {Sizes{32, 32, 0, 0, 32, 32}, {10, 100, 0, 43, 10, 13}, {100, 10, 43, 0, 13, 10}}) {
    const RandomView v = draw_view(all, 5, height, width);
    EXPECT_EQ((std::array{v.top, v.left, v.height, v.width}), (std::array{top, left, h, w}));
  }
}

TEST(RandomView, RefusesWhatCannotBe) {
  const auto refused = [](ViewAugmentation what, int view = 0) {
    return test::message_of<UsageError>([&] { RandomViewParams(what, 0, 0, view, false); });
  };
  EXPECT_MENTIONS(refused({.crop_low = 0}), "crops of 0 to 1");
  EXPECT_MENTIONS(refused({.crop_low = 0.5, .crop_high = 0.4}), "the smaller first");
  EXPECT_MENTIONS(refused({.flip = 1.5}), "flip 1.5");
  EXPECT_MENTIONS(refused({.gray = -0.1}), "probability");
  EXPECT_MENTIONS(refused({.contrast = -1}), "contrast -1");
  EXPECT_MENTIONS(refused({.hue = 0.6}), "hue 0.6");
  EXPECT_MENTIONS(refused({.blur_low = 0}), "sigma of 0 to 2");
  EXPECT_MENTIONS(refused({}, 256), "view 256");
  const auto message = test::message_of<ShapeError>([] { check_view({}, {8, 8, 1}, {8, 8, 1}); });
  EXPECT_MENTIONS(message, "3 channels");
  EXPECT_THROW(check_view({}, {8, 8, 3}, {0, 8, 3}), ShapeError);
  EXPECT_THROW(check_view({}, {8, 8, 3}, {8, 8, 1}), ShapeError);
  check_view({.jitter = 0, .gray = 0}, {8, 8, 4}, {4, 4, 4});
}

}  // namespace
}  // namespace ringtape
