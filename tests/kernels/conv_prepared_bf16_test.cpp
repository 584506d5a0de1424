// Convolutions of prepared weights in bf16 by a unit of the processor, or its emulation.
#include <string>
#include <vector>

#include "kernels/bf16_unit.h"
#include "kernels/conv2d_prepared.h"
#include "tests/support/isas.h"
#include "tests/support/prepared_convs.h"
#include "tests/support/support.h"

namespace ringtape {
namespace {

using namespace test::conv;
using test::message_of;
using test::same_bytes;
using test::values;
using test::with_threads;

// Few products, which are emulated soon.
std::vector<Case> cases() {
  std::vector<Case> out(std::begin(kOdd), std::end(kOdd));
  for (const Case& t : kResNet) out.push_back(small(t, 2));
  std::erase_if(out, [](const Case& t) { return t.n * t.h * t.w * t.c * t.k > 2'000'000; });
  return out;
}

// Norms: of the rounding of weights and results, and of that of the transformed numbers.
double tolerance(ConvAlgorithm algorithm) {
  return algorithm == ConvAlgorithm::winograd_4x4 ? 1.4e-2 : algorithm == ConvAlgorithm::winograd_2x2 ? 6e-3 : 4e-3;
}

constexpr Bf16Unit kUnits[] = {Bf16Unit::avx512_bf16, Bf16Unit::amx};

void expect_near(const Case& t, const PreparedData& d, const Tensor& want) {
  for (const ConvAlgorithm algorithm : algorithms_of(t)) {
    const PreparedConv conv = prepare(t, d, algorithm);
    EXPECT_LE(norm_error(run(conv, d), values(want)), tolerance(conv.algorithm))
        << t.name << ", algorithm " << int(conv.algorithm);
  }
}

TEST(ConvPreparedBf16, IsCloseToSumsInF64) {
  for (const Case& t : cases()) {
    const PreparedData d = draw_prepared(t, DType::bf16);
    const Tensor want = in_f64(t, d);
    for (const Bf16Unit each : kUnits) {
      const Unit unit(each, !has(each));
      expect_near(t, d, want);
    }
  }
}

TEST(ConvPreparedBf16, TheEmulationIsCloseInEveryInstructionSet) {
  for (const Case& t : cases()) {
    const PreparedData d = draw_prepared(t, DType::bf16);
    const Tensor want = in_f64(t, d);
    test::with_every_isa([&] {
      for (const Bf16Unit each : kUnits) {
        const Unit unit(each, true);
        expect_near(t, d, want);
      }
    });
  }
}

TEST(ConvPreparedBf16, TheEmulationHasTheSameBits) {
  if (!has(Bf16Unit::avx512_bf16)) GTEST_SKIP() << "no AVX512-BF16";
  for (const Case& t : cases()) {
    const PreparedData d = draw_prepared(t, DType::bf16);
    for (const ConvAlgorithm algorithm : algorithms_of(t))
      for (const Bf16Unit each : kUnits) {
        if (!has(each)) continue;
        const auto by = [&](bool emulated) {
          const Unit unit(each, emulated);
          return run(prepare(t, d, algorithm), d);
        };
        EXPECT_TRUE(same_bytes(by(false), by(true))) << t.name << ", algorithm " << int(algorithm);
      }
  }
}

void expect_same_bytes(const Case& t, const PreparedData& d, ConvAlgorithm algorithm) {
  const PreparedConv conv = prepare(t, d, algorithm);
  const Tensor one = with_threads(1, [&] { return run(conv, d); });
  for (const int count : {2, 3}) {
    EXPECT_TRUE(same_bytes(one, with_threads(count, [&] { return run(conv, d); }))) << t.name << ", " << count;
    EXPECT_TRUE(same_bytes(images(one, 0, 1), with_threads(count, [&] { return run(conv, first(d, 1)); })))
        << t.name << ", one image, " << count << " threads";
  }
}

TEST(ConvPreparedBf16, DoesNotDependOnThreadsOrOtherImages) {
  for (const Case& each : cases()) {
    const Case t = many(each, 3);
    const PreparedData d = draw_prepared(t, DType::bf16);
    for (const Bf16Unit which : kUnits) {
      const Unit unit(which, !has(which));
      for (const ConvAlgorithm algorithm : algorithms_of(t)) expect_same_bytes(t, d, algorithm);
    }
  }
}

TEST(ConvPreparedBf16, RefusesAnotherUnit) {
  const Case t = small(kResNet[1], 1);
  const PreparedData d = draw_prepared(t, DType::bf16);
  const auto prepared = [&] {
    const Unit unit(Bf16Unit::avx512_bf16, true);
    return prepare(t, d);
  }();
  const Unit unit(Bf16Unit::converted);
  EXPECT_MENTIONS(message_of<DeviceError>([&] { run(prepared, d); }), "prepared for");
}

}  // namespace
}  // namespace ringtape
