// Augmentation on the CPU: what it does to an image, against plain loops, for every instruction set.
#include "kernels/augment.h"

#include <cmath>
#include <map>

#include "tests/support/isas.h"
#include "tests/support/support.h"

namespace ringtape {
namespace {

using test::with_every_isa;

// Byte b of channel c becomes 1000 c + b, so that a result tells where it came from; bytes differ within an image.
struct Case {
  Tensor images, index, table;
  Case(int64_t n, int64_t height, int64_t width, int64_t channels)
      : images({n, height, width, channels}, DType::u8), index({n}, DType::i64), table({channels, 256}) {
    for (int64_t i = 0; i < images.size(); ++i) images.data<uint8_t>()[i] = uint8_t(1 + i * 37 % 251);
    for (int64_t i = 0; i < n; ++i) index.data<int64_t>()[i] = n - 1 - i;
    for (int64_t i = 0; i < table.size(); ++i) table.data<float>()[i] = float(i / 256 * 1000 + i % 256);
  }
  Tensor run(const Augmentation& what, uint64_t seed = 1, uint64_t epoch = 0, int64_t height = 0,
             int64_t width = 0) const {
    Tensor y({index.size(), height ? height : images.dim(1), width ? width : images.dim(2), images.dim(3)});
    augment(y, images, index, table, AugmentParams(what, seed, epoch, false));
    return y;
  }
  // The byte of sample i, 0 outside.
  float at(int64_t i, int64_t row, int64_t column, int64_t c) const {
    const bool inside = row >= 0 && row < images.dim(1) && column >= 0 && column < images.dim(2);
    const int64_t n = ((i * images.dim(1) + row) * images.dim(2) + column) * images.dim(3) + c;
    return float(1000 * c) + (inside ? images.data<uint8_t>()[n] : 0);
  }
};

// Whether image b of y is sample i with its corner at (top, left), flipped or not.
bool is_crop(const Case& in, const Tensor& y, int64_t b, int64_t i, int64_t top, int64_t left, bool flip) {
  const int64_t height = y.dim(1), width = y.dim(2), channels = y.dim(3);
  const float* at = y.data<float>() + b * height * width * channels;
  for (int64_t row = 0; row < height; ++row)
    for (int64_t column = 0; column < width; ++column)
      for (int64_t c = 0; c < channels; ++c)
        if (*at++ != in.at(i, top + row, left + (flip ? width - 1 - column : column), c)) return false;
  return true;
}

TEST(Augment, WithoutAnyOnlyTheTableIsApplied) {
  with_every_isa([] {
    for (int64_t channels : {1, 2, 3, 4}) {
      const Case in(9, 5, 7, channels);
      const Tensor y = in.run({});
      for (int64_t b = 0; b < 9; ++b)
        EXPECT_TRUE(is_crop(in, y, b, 8 - b, 0, 0, false)) << channels << " channels, image " << b;
    }
  });
}

TEST(Augment, CropsAndFlipsAreAllThereIsAndAllAlikeOften) {
  const Case in(900, 4, 5, 3);
  with_every_isa([&] {
    const Tensor y = in.run({.pad = 1, .flip = true});
    std::map<std::tuple<int64_t, int64_t, bool>, int> found;
    for (int64_t b = 0; b < 900; ++b) {
      bool any = false;
      for (int64_t top = -1; top <= 1; ++top)
        for (int64_t left = -1; left <= 1; ++left)
          for (bool flip : {false, true})
            if (!any && is_crop(in, y, b, 899 - b, top, left, flip)) any = true, ++found[{top, left, flip}];
      ASSERT_TRUE(any) << "image " << b;
    }
    ASSERT_EQ(found.size(), 18u);
    for (const auto& [which, count] : found) EXPECT_NEAR(count, 50, 30);  // more than four standard deviations
  });
}

TEST(Augment, ReflectedCropsShowTheImageOnly) {
  const Case in(300, 4, 5, 3);
  const auto mirrored = [](int64_t i, int64_t n) { return i < 0 ? -i : i < n ? i : 2 * (n - 1) - i; };
  with_every_isa([&] {
    const Augmentation what{.pad = 3, .reflect = true, .flip = true};
    const AugmentParams params(what, 1, 0, false);
    const Tensor y = in.run(what);
    int outside = 0;
    for (int64_t b = 0; b < 300; ++b) {
      const CropPlace at = place(params, 299 - b, 6, 6, 4, 5);
      for (int64_t i = 0; i < 60; ++i) {
        const int64_t row = at.top + i / 15, k = i / 3 % 5, column = at.left + (at.flip ? 4 - k : k);
        ASSERT_EQ(y.data<float>()[b * 60 + i], in.at(299 - b, mirrored(row, 4), mirrored(column, 5), i % 3)) << b;
        outside += row != mirrored(row, 4) || column != mirrored(column, 5);
      }
    }
    EXPECT_GT(outside, 3000);
  });
}

// What lies outside of a rotated image is the mirror image of what is inside.
TEST(Augment, RotatedImagesAreReflectedToo) {
  const Case in(60, 7, 6, 2);
  with_every_isa([&] {
    const Augmentation what{.pad = 2, .reflect = true, .rotation = 40};
    const AugmentParams params(what, 3, 1, false);
    const Tensor y = in.run(what, 3, 1), whole = in.run({.rotation = 40}, 3, 1);
    for (int64_t b = 0; b < 60; ++b) {
      const CropPlace at = place(params, 59 - b, 4, 4, 7, 6);
      for (int64_t i = 0; i < 84; ++i) {
        const int64_t row = reflected(at.top + i / 12, 7), column = reflected(at.left + i / 2 % 6, 6);
        ASSERT_EQ(y.data<float>()[b * 84 + i], whole.data<float>()[b * 84 + (row * 6 + column) * 2 + i % 2]) << b;
      }
    }
  });
}

TEST(Augment, AlternateFlipsTakeTurns) {
  const Case in(400, 4, 5, 3);
  with_every_isa([&] {
    int flipped = 0;
    for (uint64_t epoch = 0; epoch < 3; ++epoch) {
      const Tensor y = in.run({.alternate_flip = true}, 1, epoch), first = in.run({.alternate_flip = true});
      for (int64_t b = 0; b < 400; ++b) {
        const bool before = is_crop(in, first, b, 399 - b, 0, 0, true);
        ASSERT_TRUE(is_crop(in, y, b, 399 - b, 0, 0, before != (epoch == 1))) << "image " << b;
        flipped += epoch == 0 && before;
      }
    }
    EXPECT_NEAR(flipped, 200, 45);  // more than four standard deviations
  });
}

TEST(Augment, ASmallerResultIsCutFromAnywhere) {
  const Case in(300, 6, 9, 1);
  const Tensor y = in.run({}, 1, 0, 5, 6);
  std::map<std::pair<int64_t, int64_t>, int> found;
  for (int64_t b = 0; b < 300; ++b)
    for (int64_t top = 0; top <= 1; ++top)
      for (int64_t left = 0; left <= 3; ++left)
        if (is_crop(in, y, b, 299 - b, top, left, false)) ++found[{top, left}];
  EXPECT_EQ(found.size(), 8u);
}

TEST(Augment, CutoutIsASquareOfZeros) {
  const Case in(200, 8, 8, 3);
  with_every_isa([&] {
    const Tensor plain = in.run({}), y = in.run({.cutout = 3});
    int64_t cut = 0, corners = 0;
    for (int64_t b = 0; b < 200; ++b) {
      int64_t low[2] = {8, 8}, high[2] = {-1, -1}, zeros = 0;
      for (int64_t at = 0; at < 64; ++at) {
        const float* p = y.data<float>() + (b * 64 + at) * 3;
        const bool zero = p[0] == 0 && p[1] == 0 && p[2] == 0;
        for (int c = 0; c < 3 && !zero; ++c) ASSERT_EQ(p[c], plain.data<float>()[(b * 64 + at) * 3 + c]);
        if (!zero) continue;
        ++zeros;
        for (int axis = 0; axis < 2; ++axis) {
          const int64_t x = axis ? at % 8 : at / 8;
          low[axis] = std::min(low[axis], x), high[axis] = std::max(high[axis], x);
        }
      }
      EXPECT_EQ(zeros, (high[0] - low[0] + 1) * (high[1] - low[1] + 1)) << "image " << b;
      EXPECT_LE(zeros, 9);
      cut += zeros, corners += zeros == 4;
    }
    EXPECT_NEAR(double(cut) / 200, 9 * (22.0 / 24) * (22.0 / 24), 0.3);  // two of three lie inside at either border
    EXPECT_GT(corners, 0);
  });
}

// What the angle does: a quarter turn is exact, and any other is the bilinear mean of four pixels.
TEST(Augment, RotationIsBilinearAboutTheCentre) {
  const Case in(40, 9, 12, 2);
  for (double degrees : {10.0, 180.0}) {
    const AugmentParams params({.rotation = degrees}, 5, 2, false);
    const Tensor y = in.run({.rotation = degrees}, 5, 2);
    for (int64_t b = 0; b < 40; ++b) {
      const CropPlace at = place(params, 39 - b, 0, 0, 9, 12);
      const double cosine = double(at.cosine) / 65536, sine = double(at.sine) / 65536;
      EXPECT_NEAR(cosine * cosine + sine * sine, 1, 1e-4);
      EXPECT_LE(std::abs(std::atan2(sine, cosine)), degrees * M_PI / 180 + 1e-4);
      for (int64_t i = 0; i < 9 * 12 * 2; ++i) {
        const int64_t row = i / 24, column = i / 2 % 12, c = i % 2;
        const double v = double(row) - 4, u = double(column) - 5.5;
        const double from_y = 4 + sine * u + cosine * v, from_x = 5.5 + cosine * u - sine * v;
        const double r = std::floor(from_y), k = std::floor(from_x), fy = from_y - r, fx = from_x - k;
        const auto p = [&](double a, double d) {
          return double(in.at(39 - b, int64_t(a), int64_t(d), c) - float(1000 * c));
        };
        const double above = p(r, k) * (1 - fx) + p(r, k + 1) * fx,
                     under = p(r + 1, k) * (1 - fx) + p(r + 1, k + 1) * fx;
        const double want = above * (1 - fy) + under * fy;
        // positions in steps of 1/256 pixel: half a step times the largest difference, on both axes
        ASSERT_NEAR(y.data<float>()[b * 216 + i] - float(1000 * c), want, 1.6) << "image " << b << " element " << i;
      }
    }
  }
  int64_t cosine, sine;
  for (double x = -M_PI; x <= M_PI; x += 0.001) {
    fixed_cosine_sine(int64_t(x * 0x1p28), cosine, sine);
    ASSERT_NEAR(double(cosine), 65536 * std::cos(x), 1) << x;
    ASSERT_NEAR(double(sine), 65536 * std::sin(x), 1) << x;
  }
}

TEST(Augment, EveryInstructionSetThreadCountAndDtypeAgrees) {
  const Case in(70, 31, 33, 3);
  const Augmentation all{.pad = 3, .flip = true, .rotation = 30, .cutout = 9};
  const Tensor reference = in.run(all, 7, 11);
  with_every_isa([&] {
    for (int threads : {1, 3})
      EXPECT_TRUE(test::same_bytes(test::with_threads(threads, [&] { return in.run(all, 7, 11); }), reference));
  });
  for (DType dtype : {DType::bf16, DType::f16, DType::f64})
    dispatch_float(dtype, [&]<class T>() {
      Tensor table(in.table.shape(), dtype), y(reference.shape(), dtype);
      for (int64_t i = 0; i < table.size(); ++i) table.data<T>()[i] = T(compute_t<T>(in.table.data<float>()[i]));
      augment(y, in.images, in.index, table, AugmentParams(all, 7, 11, false));
      for (int64_t i = 0; i < y.size(); ++i) {
        const T want(compute_t<T>(reference.data<float>()[i]));
        ASSERT_EQ(compute_t<T>(y.data<T>()[i]), compute_t<T>(want));
      }
    });
  Tensor levels(in.table.shape(), DType::u8), bytes(reference.shape(), DType::u8);
  for (int64_t i = 0; i < levels.size(); ++i) levels.data<uint8_t>()[i] = uint8_t(i);
  augment(bytes, in.images, in.index, levels, AugmentParams(all, 7, 11, false));
  for (int64_t i = 0; i < bytes.size(); ++i)
    ASSERT_EQ(bytes.data<uint8_t>()[i], int64_t(reference.data<float>()[i]) % 1000);
  EXPECT_FALSE(test::same_bytes(in.run(all, 7, 12), reference));
  EXPECT_FALSE(test::same_bytes(in.run(all, 8, 11), reference));
}

TEST(Augment, AGatheredBatchIsAugmentedAsItsSamples) {
  const Case in(20, 6, 6, 3);
  const Augmentation all{.pad = 2, .flip = true, .rotation = 20, .cutout = 2};
  Tensor gathered = empty_like(in.images), y({20, 6, 6, 3});
  for (int64_t b = 0; b < 20; ++b)
    std::copy_n(in.images.data<uint8_t>() + (19 - b) * 108, 108, gathered.data<uint8_t>() + b * 108);
  augment(y, gathered, in.index, in.table, AugmentParams(all, 3, 4, true));
  EXPECT_TRUE(test::same_bytes(y, in.run(all, 3, 4)));
}

}  // namespace
}  // namespace ringtape
