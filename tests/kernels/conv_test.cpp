// conv2d on the CPU against plain sums in f64, for every algorithm, instruction set, dtype and number of threads.
#include <algorithm>
#include <cmath>

#include "autograd/create.h"
#include "autograd/ops.h"
#include "kernels/arithmetic.h"
#include "kernels/bf16_unit.h"
#include "kernels/conv2d.h"
#include "tests/support/conv_cases.h"
#include "tests/support/support.h"

namespace ringtape {
namespace {

using namespace test::conv;
using test::same_bytes;
using test::values;
using test::with_threads;

// The largest error as a part of the largest value.
double error(const Tensor& got, const std::vector<double>& want) {
  const std::vector<double> a = values(got);
  double worst = 0, largest = 1e-30;
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::isnan(a[i])) return INFINITY;
    worst = std::max(worst, std::fabs(a[i] - want[i]));
    largest = std::max(largest, std::fabs(want[i]));
  }
  return worst / largest;
}

void expect_near(const Result& got, const Exact& want, double tolerance, const std::string& what) {
  EXPECT_LE(error(got.y, want.y), tolerance) << what << ": y";
  EXPECT_LE(error(got.dx, want.dx), tolerance) << what << ": dx";
  EXPECT_LE(error(got.dw, want.dw), tolerance) << what << ": dw";
}

struct ExactConvolutions : ArithmeticScope {
  explicit ExactConvolutions(bool on) : ArithmeticScope(&Arithmetic::exact_convolutions, on) {}
};

struct Isa {
  CpuIsa before = cpu_isa();
  explicit Isa(CpuIsa isa) { set_cpu_isa(isa); }
  ~Isa() { set_cpu_isa(before); }
};

constexpr double kWinogradError = 1e-4, kDirectError = 3e-6, kNormError = 1.3e-6;

TEST(Conv, IsCloseToExactSumsForEveryLayerOfResNet18) {
  for (const Case& t : kResNet) {
    const Data d = draw(t);
    const Exact want = exact(t, d);
    for (bool on : {false, true}) {
      const ExactConvolutions scope(on);
      const Result got = run(t, d);
      expect_near(got, want, on ? kDirectError : kWinogradError, t.name + (on ? ", exact" : ""));
      for (const double error : {norm_error(got.y, want.y), norm_error(got.dx, want.dx), norm_error(got.dw, want.dw)})
        EXPECT_LE(error, kNormError) << t.name;
    }
  }
}

TEST(Conv, IsCloseToExactSumsForOddShapesInEveryInstructionSet) {
  for (const Case& t : kOdd) {
    const Data d = draw(t);
    const Exact want = exact(t, d);
    for (const CpuIsa each : cpu_isas()) {
      const Isa isa(each);
      const std::string what = t.name + " " + std::string(name_of(cpu_isa()));
      expect_near(run(t, d), want, kWinogradError, what);
      const ExactConvolutions scope(true);
      expect_near(run(t, d), want, kDirectError, what + ", exact");
    }
  }
}

TEST(Conv, AgreesWithTheExactOneForManyImagesOfManyChannels) {
  const Case t{"many", 270, 3, 4, 512, 256, 3, 3, square_window(1, 1)};
  const Data d = draw(t);
  const Result fast = run(t, d);
  const ExactConvolutions scope(true);
  const Result direct = run(t, d);
  expect_near(fast, {values(direct.y), values(direct.dx), values(direct.dw)}, kWinogradError, t.name);
}

TEST(Conv, OfDoublesNeedsNoSwitchToBeExact) {
  for (const Case& t : kOdd) {
    const Data d = draw(t, DType::f64);
    expect_near(run(t, d), exact(t, d), 1e-14, t.name);
  }
}

TEST(Conv, AccumulatesSixteenBitTypesInSinglePrecision) {
  const Unit unit(Bf16Unit::converted);
  for (const Case& t : {kResNet[3], kOdd[2], kOdd[3], kOdd[6], kOdd[11], kOdd[18], kOdd[20]})
    for (const auto& [dtype, eps] : {std::pair{DType::bf16, 0x1p-8}, std::pair{DType::f16, 0x1p-11}}) {
      const Data d = draw(t, dtype);
      expect_near(run(t, d), exact(t, d), eps + kWinogradError, t.name + " " + std::string(name_of(dtype)));
    }
}

TEST(Conv, DoesNotDependOnTheNumberOfThreads) {
  std::vector<Case> cases(std::begin(kOdd), std::end(kOdd));
  cases.insert(cases.end(), std::begin(kResNet), std::end(kResNet));
  for (const Case& t : cases)
    for (bool on : {false, true}) {
      const ExactConvolutions scope(on);
      const Data d = draw(t);
      const Result one = with_threads(1, [&] { return run(t, d); });
      for (int count : {2, 3, 5}) {
        const Result many = with_threads(count, [&] { return run(t, d); });
        EXPECT_TRUE(same_bytes(one.y, many.y) && same_bytes(one.dx, many.dx) && same_bytes(one.dw, many.dw))
            << t.name << ", " << count << " threads";
      }
    }
}

TEST(Conv, NormalisesWhatItReads) {
  for (const Case& t : kOdd) expect_normalised_alike(t, DType::f32);
  for (const Case& t : kResNet) expect_normalised_alike(many(t, 5), DType::f32);
  const Unit unit(Bf16Unit::converted);
  for (const Case& t : {kResNet[3], kOdd[3], kOdd[6], kOdd[18]})
    for (const DType dtype : {DType::bf16, DType::f16}) expect_normalised_alike(t, dtype);
}

TEST(Conv, SwitchesWinogradOff) {
  const Case& t = kResNet[1];
  const Data d = draw(t);
  const auto with = [&](bool on) {
    const ExactConvolutions scope(on);
    EXPECT_EQ(arithmetic().exact_convolutions, on);
    return run(t, d);
  };
  const Result fast = with(false), direct = with(true);
  EXPECT_FALSE(same_bytes(fast.y, direct.y));
  EXPECT_FALSE(same_bytes(fast.dx, direct.dx));
  EXPECT_FALSE(same_bytes(fast.dw, direct.dw));
}

TEST(Conv, AsksTheSystemForNothingOnceWarm) {
  for (const Case& t : {kResNet[0], kResNet[1], kResNet[4], kResNet[5]}) {
    const Data d = draw(t);
    with_threads(2, [&] {
      run(t, d);
      reset_peak_memory({});
      const MemoryStats before = memory_stats({});
      run(t, d);
      const MemoryStats after = memory_stats({});
      EXPECT_EQ(after.system_allocations, before.system_allocations) << t.name;
      const int64_t own = 2 * 4 * (d.x.size() + d.w.size() + d.dy.size());
      // dU of all points is four times dw.
      EXPECT_LE(after.peak - before.current, own + 8 * 4 * d.w.size() + (16 << 20)) << t.name;
    });
  }
}

TEST(Conv, OfNoImagesHasAGradientOfZero) {
  const Case t{"empty", 0, 5, 6, 16, 16, 3, 3, square_window(1, 1)};
  const Result got = run(t, draw(t));
  EXPECT_EQ(got.y.size(), 0);
  for (double v : values(got.dw)) EXPECT_EQ(v, 0);
}

}  // namespace
}  // namespace ringtape
