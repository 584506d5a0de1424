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

struct Unit {
  explicit Unit(Bf16Unit unit, bool emulated = false) { set_bf16_choice(Bf16Choice{unit, emulated}); }
  ~Unit() { set_bf16_choice({}); }
};

// Enough images for a product, and some left over.
Case many(Case t, int64_t n) {
  t.n = n, t.name += ", " + std::to_string(n);
  return t;
}
Case small(Case t, int64_t n) {  // of kResNet: channels of more than one block, fewer pixels
  t.h = std::min<int64_t>(t.h, 9), t.w = std::min<int64_t>(t.w, 10);
  t.c = std::min<int64_t>(t.c, 96), t.k = std::min<int64_t>(t.k, 96);
  return many(t, n);
}
std::vector<Case> cases() {
  std::vector<Case> out;
  for (const Case& t : kResNet) out.push_back(small(t, 16)), out.push_back(small(t, 37));
  for (const Case& t : kOdd) out.push_back(many(t, std::max<int64_t>(3 * t.n, 18)));
  return out;
}

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
  }
}

TEST(ConvAmx, TheEmulationHasTheSameBitsInEveryInstructionSet) {
  for (const Case& t : {small(kResNet[1], 17), small(kResNet[5], 33), small(kResNet[8], 16), small(kResNet[0], 35),
                        many(kOdd[2], 18), many(kOdd[11], 16), many(kOdd[19], 20)}) {
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
  for (const Case& t : cases()) {
    const Data d = draw(t, DType::bf16);
    const Result one = with_threads(1, [&] { return run(t, d); });
    for (int count : {2, 3, 5}) {
      const Result more = with_threads(count, [&] { return run(t, d); });
      EXPECT_TRUE(same_bytes(one.y, more.y) && same_bytes(one.dx, more.dx) && same_bytes(one.dw, more.dw))
          << t.name << ", " << count << " threads";
    }
  }
}

// Each image's result is its own.
TEST(ConvAmx, AnImageDoesNotSeeTheOthersOfItsTile) {
  const Unit unit(Bf16Unit::amx);
  const Case t = small(kResNet[2], 16);
  Data d = draw(t, DType::bf16);
  const Result before = run(t, d);
  const int64_t image = d.x.size() / t.n, output = d.dy.size() / t.n;
  fill(d.x.window({image}, {1}), INFINITY);
  const Result after = run(t, d);
  const std::vector<double> a = values(before.y), b = values(after.y);
  EXPECT_TRUE(std::equal(a.begin() + output, a.end(), b.begin() + output));
}

TEST(ConvAmx, OfNoImagesHasAGradientOfZero) {
  const Unit unit(Bf16Unit::amx);
  const Case t{"empty", 0, 5, 6, 32, 32, 3, 3, square_window(1, 1)};
  for (double v : values(run(t, draw(t, DType::bf16)).dw)) EXPECT_EQ(v, 0);
}

}  // namespace
}  // namespace ringtape
