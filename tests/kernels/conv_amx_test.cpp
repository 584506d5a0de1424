// Convolutions of bf16 by AMX: the unit if the machine has it, else its emulation.
#include <algorithm>
#include <string>
#include <vector>

#include "autograd/create.h"
#include "kernels/bf16_unit.h"
#include "kernels/conv2d.h"
#include "kernels/fill.h"
#include "tests/support/conv_cases.h"
#include "tests/support/isas.h"
#include "tests/support/support.h"

namespace ringtape {
namespace {

using namespace test::conv;
using test::same_bytes;
using test::values;
using test::with_threads;

// As few pixels and channels as reach every path, since machines without the unit emulate it: wide enough for strips
// with neighbours on both sides, two blocks of channels, and enough channels for tiles to pay.
Case tiny(Case t, int64_t n) {
  t.h = std::min<int64_t>(t.h, std::max<int64_t>(4, t.r)), t.w = std::min<int64_t>(t.w, std::max<int64_t>(10, t.s));
  if (t.groups > 1 && t.groups < t.c) t.c *= 8, t.k *= 8;
  else if (t.groups == 1 && t.c < 8 && t.c != 3) t.c *= 12, t.k *= 4;  // three: folded
  else if (t.groups == 1) t.c = t.c <= 64 ? t.c : 40, t.k = std::clamp<int64_t>(t.k, 16, 40);
  return many(t, n);
}
bool depthwise(const Case& t) { return t.groups > 1 && t.groups == t.c; }

// Fewer images than a tile has rows: each is divided, also into parts that end beyond it.
const Case kFew[] = {{"one image", 1, 9, 10, 32, 32, 3, 3, square_window(1, 1), 1, true},
                     {"three images", 3, 7, 5, 40, 48, 3, 3, square_window(1, 1)},
                     {"24 images", 24, 8, 4, 32, 32, 3, 3, square_window(1, 1)},
                     {"divided without padding", 2, 9, 6, 64, 32, 3, 3, square_window(1)},
                     {"divided, stride 2", 2, 9, 11, 32, 32, 3, 3, square_window(2, 1)},
                     {"divided, stride 3, 2", 4, 11, 10, 32, 32, 3, 2, {3, 2, 1, 0, 1, 1}},
                     {"divided, dilation 2", 2, 12, 9, 32, 32, 3, 3, square_window(1, 2, 2)},
                     {"divided, folded", 1, 33, 14, 3, 32, 7, 7, square_window(2, 3), 1, true},
                     {"divided 1x1", 2, 16, 3, 32, 64, 1, 1, square_window(1)},
                     {"divided 1x1, stride 2", 5, 9, 9, 32, 64, 1, 1, square_window(2)},
                     {"divided, grouped", 2, 8, 6, 64, 64, 3, 3, square_window(1, 1), 2}};

std::vector<Case> cases() {
  std::vector<Case> out;
  for (const Case& t : kResNet) out.push_back(tiny(t, &t == kResNet + 1 ? 37 : 17));
  for (const Case& t : kOdd) out.push_back(tiny(t, 18));
  out.insert(out.end(), std::begin(kFew), std::end(kFew));
  out.push_back({"groups of rows", 4, 600, 2, 32, 16, 3, 3, square_window(1, 1)});
  return out;
}

// No images, no pixel under a window, no channels.
const Case kNothing[] = {{"no images", 0, 5, 6, 32, 32, 3, 3, square_window(1, 1)},
                         {"only padding", 16, 1, 1, 32, 32, 1, 1, square_window(2, 1)},
                         {"only padding, 1x3", 16, 1, 4, 32, 32, 1, 3, {4, 1, 1, 0, 1, 1}},
                         {"no rows", 16, 0, 4, 32, 32, 3, 3, square_window(1, 2)},
                         {"no outputs", 16, 4, 4, 32, 0, 3, 3, square_window(1, 1)}};

// The operands are rounded to begin with; the sums are f32, the results bf16.
constexpr double kError = 3e-3;

TEST(ConvAmx, IsCloseToExactSums) {
  const Unit unit(Bf16Unit::amx);
  for (const Case& t : cases()) {
    const Data d = draw(t, DType::bf16);
    const Exact want = exact(t, d);
    const Result got = run(t, d);
    EXPECT_LE(norm_error(got.y, want.y), kError) << t.name;
    EXPECT_LE(norm_error(got.dx, want.dx), kError) << t.name;
    EXPECT_LE(norm_error(got.dw, want.dw), kError) << t.name;
    Tensor dw(d.w.shape(), DType::f32);
    conv2d_backward_weights(dw, d.dy, d.x, t.window);
    EXPECT_LE(norm_error(dw, want.dw), depthwise(t) ? kError : 1e-5) << t.name;  // not rounded, so it was by AMX
  }
}

TEST(ConvAmx, TheEmulationHasTheSameBitsInEveryInstructionSet) {
  for (const Case& t : {tiny(kResNet[1], 17), tiny(kResNet[5], 33), tiny(kResNet[8], 16), tiny(kResNet[0], 35),
                        tiny(kOdd[2], 18), tiny(kOdd[11], 16), tiny(kOdd[19], 20), kFew[1], kFew[4]}) {
    const Data d = draw(t, DType::bf16);
    const Unit unit(Bf16Unit::amx);
    const Result want = run(t, d);
    test::with_every_isa([&] {
      const Unit emulated(Bf16Unit::amx, true);
      const Result got = run(t, d);
      EXPECT_TRUE(same_bytes(got.y, want.y) && same_bytes(got.dx, want.dx) && same_bytes(got.dw, want.dw)) << t.name;
    });
  }
}

TEST(ConvAmx, DoesNotDependOnTheNumberOfThreads) {
  const Unit unit(Bf16Unit::amx);
  const std::vector<Case> all = cases();
  for (size_t i = 1; i < all.size(); i += 3) {
    const Case& t = all[i];
    const Data d = draw(t, DType::bf16);
    const Result one = with_threads(1, [&] { return run(t, d); }), more = with_threads(3, [&] { return run(t, d); });
    EXPECT_TRUE(same_bytes(one.y, more.y) && same_bytes(one.dx, more.dx) && same_bytes(one.dw, more.dw)) << t.name;
  }
}

TEST(ConvAmx, NormalisesImagesAsItReadsThem) {
  const Unit unit(Bf16Unit::amx);
  for (const Case& t : cases()) expect_normalised_alike(t, DType::bf16);
  for (const Case& t : kNothing) expect_normalised_alike(t, DType::bf16);
}

// By others than AMX it is.
TEST(ConvAmx, TheGradientMayBeF32WithoutIt) {
  const Unit unit(Bf16Unit::converted);
  const Case t = tiny(kOdd[2], 18);
  const Data d = draw(t, DType::bf16);
  Tensor dw(d.w.shape(), DType::f32);
  conv2d_backward_weights(dw, d.dy, d.x, t.window);
  EXPECT_LE(norm_error(dw, exact(t, d).dw), kError);
}

// Past the caches, and several blocks of images and rows.
TEST(ConvAmx, OfManyImagesAgreesWithTheConvertedOne) {
  const auto emulated = [] {
    const Unit unit(Bf16Unit::amx);
    return bf16_choice().emulated;  // also where the build has no AVX-512
  };
  if (emulated()) GTEST_SKIP() << "only the unit itself writes past the caches";
  for (const Case& t : {many(kResNet[1], 35), many(kResNet[5], 130), many(kResNet[4], 67), many(kResNet[9], 40)}) {
    const Data d = draw(t, DType::bf16);
    const auto with = [&](Bf16Unit which) {
      const Unit unit(which);
      return with_threads(2, [&] { return run(t, d); });
    };
    const Result want = with(Bf16Unit::converted), got = with(Bf16Unit::amx);
    EXPECT_LE(norm_error(got.y, values(want.y)), 2 * kError) << t.name;
    EXPECT_LE(norm_error(got.dx, values(want.dx)), 2 * kError) << t.name;
    EXPECT_LE(norm_error(got.dw, values(want.dw)), 2 * kError) << t.name;
    const Tensor dw(d.w.shape(), DType::f32);
    {
      const Unit unit(Bf16Unit::amx);
      conv2d_backward_weights(dw, d.dy, d.x, t.window);
    }
    EXPECT_TRUE(same_bytes(cast(dw, DType::bf16), got.dw)) << t.name;
  }
}

// Each image's result is its own.
TEST(ConvAmx, AnImageDoesNotSeeTheOthersOfItsTile) {
  const Unit unit(Bf16Unit::amx);
  const Case t = tiny(kResNet[2], 16);
  Data d = draw(t, DType::bf16);
  const Result before = run(t, d);
  const int64_t image = d.x.size() / t.n, output = d.dy.size() / t.n;
  fill(d.x.window({image}, {1}), INFINITY);
  const Result after = run(t, d);
  const std::vector<double> a = values(before.y), b = values(after.y);
  EXPECT_TRUE(std::equal(a.begin() + output, a.end(), b.begin() + output));
}

// Nor does it matter how many there are, and so into how many parts they are divided.
TEST(ConvAmx, AnImageHasTheSameBytesInEveryBatch) {
  const Unit unit(Bf16Unit::amx);
  for (const Case& few : kFew) {
    const Data d = draw(many(few, 16), DType::bf16);
    const Result all = run(few.window, d);
    for (int64_t n : {1, 2, 3, 5, 11}) {
      const auto first = [n](const Tensor& x) { return contiguous(slice(x, 0, 0, n)); };
      const Result some = run(few.window, {first(d.x), d.w, d.b, first(d.dy)});
      EXPECT_TRUE(same_bytes(some.y, first(all.y)) && same_bytes(some.dx, first(all.dx))) << few.name << " " << n;
    }
  }
}

TEST(ConvAmx, OfNothingIsZero) {
  const Unit unit(Bf16Unit::amx);
  for (const Case& t : kNothing) {
    const Result got = run(t, draw(t, DType::bf16));
    for (const Tensor& x : {got.y, got.dx, got.dw})
      for (double v : values(x)) EXPECT_EQ(v, 0) << t.name;
  }
}

}  // namespace
}  // namespace ringtape
