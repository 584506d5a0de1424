// The copies of a test image, against plain loops.
#include "train/evaluation/test_copies.h"

#include "autograd/create.h"
#include "autograd/ops.h"
#include "tests/support/support.h"

namespace ringtape {
namespace {

TEST(TestCopies, AreFlippedAndShiftedAndWeightedByTheirDistance) {
  constexpr int64_t kHeight = 4, kWidth = 5;
  manual_seed(4);
  const Tensor x = cast(randn({2, kHeight, kWidth, 3}), DType::f64);
  const auto all = [](const Tensor& images) { return flatten(images); };
  const auto pixel = [&](int64_t n, int64_t row, int64_t column, int64_t c) {
    const auto inside = [](int64_t i, int64_t size) { return i < 0 ? 1 : i < size ? i : size - 2; };
    const int64_t at = (n * kHeight + inside(row, kHeight)) * kWidth + inside(column, kWidth);
    return x.data<double>()[at * 3 + c];
  };
  const std::vector<double> none = test::values(mean_over_copies("none", x, all)),
                            flipped = test::values(mean_over_copies("flip", x, all)),
                            shifted = test::values(mean_over_copies("shift", x, all));
  size_t i = 0;
  for (int64_t n = 0; n < 2; ++n)
    for (int64_t row = 0; row < kHeight; ++row)
      for (int64_t column = 0; column < kWidth; ++column)
        for (int64_t c = 0; c < 3; ++c, ++i) {
          const auto both = [&](int64_t by) {
            return (pixel(n, row + by, column + by, c) + pixel(n, row + by, kWidth - 1 - column + by, c)) / 2;
          };
          EXPECT_EQ(none[i], pixel(n, row, column, c));
          EXPECT_NEAR(flipped[i], both(0), 1e-15);
          EXPECT_NEAR(shifted[i], both(0) / 2 + (both(-1) + both(1)) / 4, 1e-15);
        }
}

TEST(TestCopies, AreAveragedInMoreThan16Bits) {
  const Tensor x = ones({1, 2, 2, 3});
  const auto half = [](const Tensor& images) { return cast(flatten(images), DType::bf16); };
  EXPECT_EQ(mean_over_copies("none", x, half).dtype(), DType::bf16);
  EXPECT_EQ(mean_over_copies("shift", x, half).dtype(), DType::f32);
  EXPECT_EQ(test::message_of<UsageError>([&] {
              (void)mean_over_copies("shift", ones({1, 1, 2, 3}), half);
            }),
            "--test-copies shift: images of 1x2 cannot be shifted");
}

}  // namespace
}  // namespace ringtape
