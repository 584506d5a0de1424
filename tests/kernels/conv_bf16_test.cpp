// Convolutions of bf16 by AVX512-BF16: the unit if the machine has it, else its emulation.
#include <string>
#include <vector>

#include "kernels/arithmetic.h"
#include "kernels/bf16_unit.h"
#include "kernels/conv2d.h"
#include "tests/support/conv_cases.h"
#include "tests/support/isas.h"
#include "tests/support/support.h"

namespace ringtape {
namespace {

using namespace test::conv;
using test::same_bytes;
using test::values;
using test::with_threads;

struct ExactConvolutions : ArithmeticScope {
  explicit ExactConvolutions(bool on) : ArithmeticScope(&Arithmetic::exact_convolutions, on) {}
};

bool emulated_soon(const Case& t) { return t.n * t.h * t.w * t.c * t.k <= 2'000'000; }

// Small ones alone, if the unit in use is emulated.
std::vector<Case> cases() {
  std::vector<Case> out(std::begin(kOdd), std::end(kOdd));
  for (const Case& t : kResNet) out.push_back(small(t, 5));
  // All tiles in one block of the weights' gradient, in several, and in ranges; more channels than a panel.
  out.push_back({"tiles by panel", 5, 7, 6, 130, 70, 3, 3, square_window(1, 1)});
  out.push_back({"many tiles, many channels", 33, 15, 14, 98, 102, 3, 3, square_window(1, 1)});
  out.push_back({"many tiles, few channels", 41, 17, 15, 36, 19, 3, 3, square_window(1, 1), 1, true});
  out.push_back({"deep", 3, 9, 5, 600, 33, 3, 3, square_window(1, 1), 1, true});
  out.push_back({"few deep tiles", 1, 8, 8, 300, 150, 3, 3, square_window(1, 1), 1, true});
  if (bf16_choice().emulated) std::erase_if(out, [](const Case& t) { return !emulated_soon(t); });
  return out;
}

// The results are bf16, and for Winograd so are the transformed operands.
constexpr double kDirectError = 3e-3, kForwardError = 8e-3, kBackwardError = 1.3e-2;

void expect_near(const Case& t, const Result& got, const Exact& want, bool exact) {
  EXPECT_LE(norm_error(got.y, want.y), exact ? kDirectError : kForwardError) << t.name << ": y";
  EXPECT_LE(norm_error(got.dx, want.dx), exact ? kDirectError : kBackwardError) << t.name << ": dx";
  EXPECT_LE(norm_error(got.dw, want.dw), exact ? kDirectError : kBackwardError) << t.name << ": dw";
}

void expect_same(const Case& t, const Result& a, const Result& b) {
  EXPECT_TRUE(same_bytes(a.y, b.y)) << t.name << ": y";
  EXPECT_TRUE(same_bytes(a.dx, b.dx)) << t.name << ": dx";
  EXPECT_TRUE(same_bytes(a.dw, b.dw)) << t.name << ": dw";
}

TEST(ConvBf16, NormalisesWhatItReads) {
  const Unit unit(Bf16Unit::avx512_bf16);
  for (const Case& t : cases()) expect_normalised_alike(t, DType::bf16);
}

TEST(ConvBf16, IsCloseToExactSums) {
  const Unit unit(Bf16Unit::avx512_bf16);
  for (const Case& t : cases()) {
    const Data d = draw(t, DType::bf16);
    const Exact want = exact(t, d);
    for (bool on : {false, true}) {
      const ExactConvolutions scope(on);
      expect_near(t, run(t, d), want, on);
    }
  }
}

TEST(ConvBf16, OfTheLayersOfResNet18IsCloseToExactSums) {
  const Unit unit(Bf16Unit::avx512_bf16);
  if (bf16_choice().emulated) GTEST_SKIP() << "no AVX512-BF16; the emulation takes long";
  for (const Case& t : {kResNet[1], kResNet[4]}) {
    const Data d = draw(t, DType::bf16);
    expect_near(t, run(t, d), exact(t, d), false);
  }
}

TEST(ConvBf16, TheEmulationIsCloseInEveryInstructionSet) {
  for (const Case& t : cases()) {
    if (!emulated_soon(t)) continue;
    const Data d = draw(t, DType::bf16);
    const Exact want = exact(t, d);
    test::with_every_isa([&] {
      const Unit unit(Bf16Unit::avx512_bf16, true);
      for (bool on : {false, true}) {
        const ExactConvolutions scope(on);
        expect_near(t, run(t, d), want, on);
      }
    });
  }
}

TEST(ConvBf16, TheEmulationHasTheSameBits) {
  if (!has(Bf16Unit::avx512_bf16)) GTEST_SKIP() << "no AVX512-BF16";
  for (const Case& t : cases()) {
    if (!emulated_soon(t)) continue;
    const Data d = draw(t, DType::bf16);
    for (bool on : {false, true}) {
      const ExactConvolutions scope(on);
      const auto by = [&](bool emulated) {
        const Unit unit(Bf16Unit::avx512_bf16, emulated);
        return run(t, d);
      };
      expect_same(t, by(false), by(true));
    }
  }
}

TEST(ConvBf16, DoesNotDependOnTheNumberOfThreads) {
  const Unit unit(Bf16Unit::avx512_bf16);
  for (const Case& t : cases())
    for (bool on : {false, true}) {
      const ExactConvolutions scope(on);
      const Data d = draw(t, DType::bf16);
      const Result one = with_threads(1, [&] { return run(t, d); });
      for (int count : {2, 3}) expect_same(t, one, with_threads(count, [&] { return run(t, d); }));
    }
}

TEST(ConvBf16, DiffersFromTheConvertedOneAndFromTheDirectOne) {
  const Case t = small(kResNet[1], 2);
  const Data d = draw(t, DType::bf16);
  const auto by = [&](Bf16Unit which, bool exact) {
    const Unit unit(which);
    const ExactConvolutions scope(exact);
    return run(t, d);
  };
  const Result a = by(Bf16Unit::avx512_bf16, false);
  for (const Result& b : {by(Bf16Unit::converted, false), by(Bf16Unit::avx512_bf16, true)})
    EXPECT_FALSE(same_bytes(a.y, b.y) || same_bytes(a.dx, b.dx) || same_bytes(a.dw, b.dw));
}

TEST(ConvBf16, OfNoImagesHasAGradientOfZero) {
  const Unit unit(Bf16Unit::avx512_bf16);
  const Case t{"empty", 0, 5, 6, 16, 16, 3, 3, square_window(1, 1)};
  for (double v : values(run(t, draw(t, DType::bf16)).dw)) EXPECT_EQ(v, 0);
}

}  // namespace
}  // namespace ringtape
