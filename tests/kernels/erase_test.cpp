// Erased parts of images on the CPU: where they are, how often and how large.
#include "kernels/erase.h"

#include <cmath>

#include "tests/support/isas.h"
#include "tests/support/support.h"

namespace ringtape {
namespace {

Tensor numbers(int64_t n) {
  Tensor out({n}, DType::i64);
  for (int64_t i = 0; i < n; ++i) out.data<int64_t>()[i] = n - 1 - i;
  return out;
}

Tensor erased(const Shape& shape, const EraseParams& p) {
  Tensor y(shape);
  for (int64_t i = 0; i < y.size(); ++i) y.data<float>()[i] = float(i + 1);
  erase(y, numbers(shape[0]), p);
  return y;
}

bool inside(const Rectangle& r, int64_t row, int64_t column) {
  return row >= r.top && row < r.top + r.height && column >= r.left && column < r.left + r.width;
}

TEST(Erase, WhatIsDrawnIsZeroAndNothingElse) {
  test::with_every_isa([] {
    for (const Shape& shape : {Shape{60, 11, 14, 3}, Shape{30, 1, 9, 1}, Shape{40, 24, 8, 2}})
      for (const Erasing& what :
           {Erasing{.probability = 0.6}, Erasing{.cutout = 5}, Erasing{.probability = 1, .cutout = 3}}) {
        const EraseParams p(what, 3, 4);
        const Tensor y = test::with_threads(3, [&] { return erased(shape, p); });
        for (int64_t i = 0; i < y.size(); ++i) {
          const int64_t pixel = i / shape[3], column = pixel % shape[2], row = pixel / shape[2] % shape[1];
          const int64_t sample = shape[0] - 1 - pixel / shape[2] / shape[1];
          const bool cut = inside(draw_erased(p, sample, shape[1], shape[2]), row, column) ||
                           inside(draw_cutout(p, sample, shape[1], shape[2]), row, column);
          ASSERT_EQ(y.data<float>()[i], cut ? 0.0f : float(i + 1)) << concat(shape) << " element " << i;
        }
      }
  });
}

TEST(Erase, ACutoutIsWhereTheAugmentationHasIt) {
  const EraseParams p({.cutout = 6}, 7, 9);
  const CropPlace at = place(AugmentParams({.pad = 4, .flip = true, .cutout = 6}, 7, 9, false), 5, 8, 8, 32, 32);
  const Rectangle cut = draw_cutout(p, 5, 32, 32);
  EXPECT_EQ(cut.top, at.cut_top);
  EXPECT_EQ(cut.left, at.cut_left);
  EXPECT_EQ(cut.height, 6);
}

TEST(Erase, DrawsAreDistributedAsTheyShould) {
  const EraseParams p({.probability = 0.25}, 1, 2);
  constexpr int64_t kDraws = 40'000, kSide = 2000;
  int64_t found = 0;
  double area = 0, squares = 0, aspect = 0, top = 0, least = 1, most = 0, flattest = 9, tallest = 0;
  for (int64_t i = 0; i < kDraws; ++i) {
    const Rectangle r = draw_erased(p, i, kSide, kSide);
    if (r.height == 0) continue;
    ++found;
    ASSERT_TRUE(r.top >= 0 && r.top + r.height <= kSide && r.left >= 0 && r.left + r.width <= kSide);
    const double share = double(r.height * r.width) / double(kSide * kSide), ratio = double(r.height) / double(r.width);
    area += share, squares += share * share, aspect += std::log(ratio), top += double(r.top) / double(kSide - r.height);
    least = std::min(least, share), most = std::max(most, share);
    flattest = std::min(flattest, ratio), tallest = std::max(tallest, ratio);
  }
  const auto n = double(found), mean = area / n;
  EXPECT_NEAR(n / kDraws, 0.25, 0.009);  // four standard deviations
  EXPECT_NEAR(mean, 0.175, 0.004);
  EXPECT_NEAR(squares / n - mean * mean, 0.31 * 0.31 / 12, 3e-4);
  EXPECT_NEAR(aspect / n, (std::log(0.3) + std::log(3.3)) / 2, 0.03);
  EXPECT_NEAR(top / n, 0.5, 0.012);
  EXPECT_TRUE(least >= 0.0199 && least < 0.021 && most <= 0.3304 && most > 0.329) << least << ' ' << most;
  EXPECT_TRUE(flattest >= 0.299 && flattest < 0.302 && tallest <= 3.31 && tallest > 3.28) << flattest << ' ' << tallest;
}

TEST(Erase, RefusesWhatCannotBe) {
  EXPECT_MENTIONS(test::message_of<UsageError>([] { EraseParams({.probability = 1.5}, 0, 0); }), "erasing 1.5");
}

}  // namespace
}  // namespace ringtape
