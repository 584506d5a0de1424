// Dispatch, and the elementary functions of each instruction set.
#include "kernels/kernel.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "autograd/create.h"
#include "autograd/ops.h"
#include "kernels/arithmetic.h"
#include "kernels/bf16_unit.h"
#include "tests/support/isas.h"
#include "tests/support/support.h"

namespace ringtape {
namespace {

using test::message_of;

void nothing(View, View) {}

TEST(Kernel, ChecksDevicesAndNamesAnEmptySlot) {
  constexpr Kernel<void(View, View)> k{"two_views", nothing, nothing, nothing, nothing, nullptr};
  float value = 0;
  View a, b;
  a.data = b.data = &value;
  EXPECT_NO_THROW(k(a, b));
  b.device.index = 1;
  EXPECT_NE(message_of<DeviceError>([&] { k(a, b); }).find("two_views: operands on cpu:0 and cpu:1"),
            std::string::npos);
  b.data = nullptr;
  EXPECT_NO_THROW(k(a, b));  // an optional operand that is not there is on no device
  b.data = &value;
  a.device = b.device = {DeviceType::cuda, 0};
  const std::string message = message_of<DeviceError>([&] { k(a, b); });
  EXPECT_EQ(message, "two_views has no kernel for cuda:0 (built without CUDA: reconfigure with -DRINGTAPE_CUDA=ON)");
  EXPECT_FALSE(k.has(DeviceType::cuda));
}

TEST(Kernel, AnInstructionSetThatIsNotThereIsRefused) {
  const CpuIsa before = cpu_isa();
  EXPECT_TRUE(std::ranges::is_sorted(cpu_isas()));
  for (int i = 0; i < kCpuIsas; ++i) {
    const auto isa = CpuIsa(i);
    if (std::ranges::count(cpu_isas(), isa)) {
      set_cpu_isa(isa);
      EXPECT_EQ(cpu_isa(), isa);
    } else {
      const std::string refused = message_of<DeviceError>([&] { set_cpu_isa(isa); });
      EXPECT_TRUE(refused.starts_with(concat(isa, ": this machine or this build does not have it; expected one of ")))
          << refused;
    }
  }
  set_cpu_isa(before);
}

TEST(Kernel, TheUnitForBf16IsEmulatedWhereItIsMissing) {
  const CpuIsa before = cpu_isa();
  const Bf16Choice automatic = bf16_choice();
  EXPECT_FALSE(automatic.emulated);
  EXPECT_TRUE(has(automatic.unit));
  EXPECT_TRUE(has(Bf16Unit::converted));
  for (const CpuIsa isa : cpu_isas())
    for (const Bf16Unit unit : {Bf16Unit::converted, Bf16Unit::avx512_bf16, Bf16Unit::amx}) {
      set_cpu_isa(isa);
      for (const bool emulated : {false, true}) {
        const ArithmeticScope scope(&Arithmetic::bf16, Bf16Choice{unit, emulated});
        EXPECT_EQ(bf16_choice().unit, unit);
        const bool missing = isa != CpuIsa::avx512 || !has(unit);
        EXPECT_EQ(bf16_choice().emulated, unit != Bf16Unit::converted && (emulated || missing));
      }
      EXPECT_EQ(bf16_choice().unit, isa == CpuIsa::avx512 ? automatic.unit : Bf16Unit::converted) << name_of(isa);
    }
  set_cpu_isa(before);
}

TEST(Kernel, ABuildForOneInstructionSetSaysWhereItDoesNotRun) {
  using Isas = std::vector<CpuIsa>;
  const Isas all = {CpuIsa::portable, CpuIsa::avx2, CpuIsa::avx512}, old = {CpuIsa::portable};
  EXPECT_EQ(usable_cpu_isas(all, old), old);
  EXPECT_EQ(usable_cpu_isas({CpuIsa::avx2}, all), Isas{CpuIsa::avx2});
  EXPECT_EQ(message_of<DeviceError>([&] {
              usable_cpu_isas({CpuIsa::avx512}, {CpuIsa::portable, CpuIsa::avx2});
            }),
            "this build has CPU kernels for avx512 only, and this processor has portable avx2; build it on this "
            "machine, or for all with -DRINGTAPE_ISAS=all");
}

// Distance in units in the last place of the exact result.
double ulps(float got, double want) {
  if (std::isnan(want)) return std::isnan(got) ? 0 : INFINITY;
  if (float(want) == got) return 0;
  const float w = float(want), next = std::nextafter(std::fabs(w), INFINITY);
  return std::fabs(double(got) - want) / double(next - std::fabs(w));
}

struct Function {
  const char* name;
  Tensor (*ours)(const Tensor&);
  double (*exact)(double);
  float low, high;
  double limit;  // ulps
};
// erf shows through gelu; its error is measured against |x|, as x Phi(x) vanishes to the left.
const Function kFunctions[] = {
    {"exp", exp, std::exp, -103.9f, 88.7f, 2},
    {"log", log, std::log, 1e-44f, 1e38f, 2},
    {"log1p", log1p, std::log1p, 1e-44f, 1e38f, 3},
    {"log1p", log1p, std::log1p, -0.99999994f, 3, 3},
    {"tanh", tanh, std::tanh, -12, 12, 3},
    {"sigmoid", sigmoid, [](double x) { return 1 / (1 + std::exp(-x)); }, -80, 80, 4},
};

TEST(Math, IsAccurateInEveryInstructionSet) {
  test::with_every_isa([&] {
    for (const Function& f : kFunctions) {
      constexpr int64_t n = 200000;
      Tensor x({n});
      for (int64_t i = 0; i < n; ++i) {
        const double t = double(i) / (n - 1);
        // positive numbers over all magnitudes, the others evenly
        x.data<float>()[i] = f.low > 0
                                 ? float(std::exp(std::log(double(f.low)) * (1 - t) + std::log(double(f.high)) * t))
                                 : float(f.low + (f.high - f.low) * t);
      }
      const Tensor y = f.ours(x);
      double worst = 0;
      float at = 0;
      for (int64_t i = 0; i < n; ++i) {
        const double error = ulps(y.data<float>()[i], f.exact(double(x.data<float>()[i])));
        if (error > worst) worst = error, at = x.data<float>()[i];
      }
      EXPECT_LE(worst, f.limit) << f.name << " at " << at;
    }
    const Tensor x = rand({100000}, -6, 6), y = gelu(x);
    for (int64_t i = 0; i < x.size(); ++i) {
      const double v = x.data<float>()[i], want = v * 0.5 * std::erfc(-v / std::sqrt(2.0));
      ASSERT_NEAR(y.data<float>()[i], want, 4e-7 * std::max(1.0, std::fabs(v))) << "gelu at " << v;
    }
  });
}

TEST(Math, KeepsTheEdges) {
  constexpr float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  test::with_every_isa([&] {
    const auto at = [](Tensor (*f)(const Tensor&), float x) { return float(f(full({1}, double(x))).item()); };
    EXPECT_EQ(at(exp, inf), inf);
    EXPECT_EQ(at(exp, 89.5f), inf);
    EXPECT_EQ(at(exp, -inf), 0);
    EXPECT_EQ(at(exp, -110), 0);
    EXPECT_EQ(at(exp, 0), 1);
    EXPECT_TRUE(std::isnan(at(exp, nan)));
    EXPECT_EQ(at(log, 0), -inf);
    EXPECT_EQ(at(log, inf), inf);
    EXPECT_EQ(at(log, 1), 0);
    EXPECT_TRUE(std::isnan(at(log, -1)));
    EXPECT_TRUE(std::isnan(at(log, nan)));
    EXPECT_EQ(at(log1p, -1), -inf);
    EXPECT_EQ(at(log1p, 0), 0);
    EXPECT_EQ(at(log1p, inf), inf);
    EXPECT_TRUE(std::isnan(at(log1p, -2)));
    EXPECT_TRUE(std::isnan(at(log1p, nan)));
    EXPECT_EQ(at(tanh, inf), 1);
    EXPECT_EQ(at(tanh, -inf), -1);
    EXPECT_TRUE(std::isnan(at(tanh, nan)));
    EXPECT_TRUE(std::isnan(at(relu, nan)));
    EXPECT_EQ(at(sigmoid, -200), 0);
    // A row that holds an infinity or a NaN.
    const Tensor rows = from_host(std::vector<float>{1, -inf, nan, 2, 3, 4}, {2, 3});
    EXPECT_TRUE(std::isnan(max(rows, {1}).data<float>()[0]));
    EXPECT_EQ(max(rows, {1}).data<float>()[1], 4);
    EXPECT_EQ(logsumexp(full({3}, -INFINITY)).item(), -INFINITY);
    EXPECT_EQ(softmax(from_host(std::vector<float>{0, -inf}, {2})).data<float>()[0], 1);
  });
}

TEST(Copy, ConvertsEveryDtypeToEveryOther) {
  const std::vector<DType> all = {DType::b8,  DType::u8,   DType::i32, DType::i64,
                                  DType::f16, DType::bf16, DType::f32, DType::f64};
  for (DType from : all)
    for (DType to : all) {
      const Tensor x = cast(from_host(std::vector<double>{0, 1, 3, 100}, {4}), from);
      const std::vector<double> want =
          from == DType::b8 || to == DType::b8 ? std::vector<double>{0, 1, 1, 1} : std::vector<double>{0, 1, 3, 100};
      EXPECT_EQ(test::values(cast(x, to)), want) << name_of(from) << " to " << name_of(to);
    }
  EXPECT_EQ(cast(from_host(std::vector<int64_t>{(int64_t{1} << 53) - 1}, {1}), DType::f64).item(), 0x1p53 - 1);
}

// Numbers on both sides of every place where rounding changes, in sizes that fill vectors and in others.
TEST(Copy, VectorsOfBf16AreThoseOfOneNumber) {
  test::with_every_isa([] {
    for (const int64_t n : {6 * 65536, 997, 33, 7}) {
      SCOPED_TRACE(n);
      std::vector<float> wide(static_cast<size_t>(n));
      for (size_t i = 0; i < wide.size(); ++i) {
        constexpr uint32_t kLower[] = {0, 1, 0x7fff, 0x8000, 0x8001, 0xffff};
        wide[i] = std::bit_cast<float>(uint32_t(i / 6 * (n > 65536 ? 1 : 40503)) << 16 | kLower[i % 6]);
      }
      const auto bits = [](const Tensor& t, int64_t i) { return t.data<bf16>()[i].bits; };
      const Tensor x = from_host(wide, {n}), half = cast(x, DType::bf16), back = cast(half, DType::f32);
      const Tensor times = half * -3, product = half * flip(half, 0);
      for (int64_t i = 0; i < n; ++i) {
        const bf16 one(wide[size_t(i)]), other(wide[size_t(n - 1 - i)]);
        const float value(one);
        ASSERT_EQ(bits(half, i), one.bits) << i;
        ASSERT_EQ(std::bit_cast<uint32_t>(back.data<float>()[i]), std::bit_cast<uint32_t>(value)) << i;
        ASSERT_EQ(bits(times, i), bf16(value * -3).bits) << i;
        if (!std::isnan(value)) {
          ASSERT_EQ(bits(product, i), bf16(value * float(other)).bits) << i;
        }
      }
    }
  });
}

}  // namespace
}  // namespace ringtape
