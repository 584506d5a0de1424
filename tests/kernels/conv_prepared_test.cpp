// Convolutions of prepared weights against conv2d_forward in f64, for every algorithm, instruction set and dtype.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "kernels/conv2d_prepared.h"
#include "tests/support/isas.h"
#include "tests/support/prepared_convs.h"
#include "tests/support/support.h"

namespace ringtape {
namespace {

using namespace test::conv;
using test::message_of;
using test::same_bytes;
using test::with_threads;

// The layers of ResNet-18 and ResNet-50 for images of 224x224, of fewer channels where they only repeat panels.
const Case kLarge[] = {{"stem 224", 1, 224, 224, 3, 64, 7, 7, square_window(2, 3), 1, true},
                       {"64 @ 56x56", 1, 56, 56, 64, 64, 3, 3, square_window(1, 1), 1, true},
                       {"128 @ 28x28", 1, 28, 28, 128, 128, 3, 3, square_window(1, 1), 1, true},
                       {"256 @ 14x14", 1, 14, 14, 256, 96, 3, 3, square_window(1, 1), 1, true},
                       {"512 @ 7x7", 1, 7, 7, 512, 96, 3, 3, square_window(1, 1), 1, true},
                       {"64-128 @ 56x56, stride 2", 1, 56, 56, 64, 128, 3, 3, square_window(2, 1), 1, true},
                       {"256-512 @ 14x14, stride 2", 1, 14, 14, 256, 512, 3, 3, square_window(2, 1), 1, true},
                       {"256-512 1x1, stride 2", 1, 56, 56, 256, 512, 1, 1, square_window(2), 1, true},
                       {"2048-512 1x1", 1, 7, 7, 2048, 512, 1, 1, square_window(1), 1, true},
                       {"a fully connected layer", 70, 1, 1, 512, 100, 1, 1, square_window(1), 1, true}};

std::vector<Case> cases() {
  std::vector<Case> out(std::begin(kOdd), std::end(kOdd));
  out.insert(out.end(), std::begin(kResNet), std::end(kResNet));
  out.insert(out.end(), std::begin(kLarge), std::end(kLarge));
  return out;
}

TEST(ConvPrepared, IsCloseToSumsInF64) {
  for (const Case& t : cases()) {
    const PreparedData d = draw_prepared(t);
    const Tensor want = in_f64(t, d);
    test::with_every_isa([&] {
      for (const ConvAlgorithm algorithm : algorithms_of(t))
        EXPECT_LE(largest_error(run(prepare(t, d, algorithm), d), want), tolerance_of(algorithm))
            << t.name << ", algorithm " << int(algorithm);
    });
  }
}

TEST(ConvPrepared, RoundsSixteenBitTypesOnce) {
  const Unit unit(Bf16Unit::converted);
  for (const Case& t : {kResNet[1], kResNet[4], kOdd[2], kOdd[3], kOdd[11], kOdd[17], kOdd[19]})
    for (const DType dtype : {DType::bf16, DType::f16}) {
      const double eps = dtype == DType::bf16 ? 0x1p-8 : 0x1p-11;
      const PreparedData d = draw_prepared(t, dtype);
      const Tensor want = in_f64(t, d);
      test::with_every_isa([&] {
        for (const ConvAlgorithm algorithm : algorithms_of(t))
          EXPECT_LE(largest_error(run(prepare(t, d, algorithm), d), want), eps + tolerance_of(algorithm))
              << t.name << ", algorithm " << int(algorithm) << " " << name_of(dtype);
      });
    }
}

TEST(ConvPrepared, DoesNotDependOnThreadsOrOtherImages) {
  for (const Case& each : cases()) {
    const Case t = many(each, each.h * each.w > 1024 ? each.n : std::max<int64_t>(each.n, 5));
    const PreparedData d = draw_prepared(t);
    for (const ConvAlgorithm algorithm : algorithms_of(t)) {
      const PreparedConv conv = prepare(t, d, algorithm);
      const std::string what = t.name + ", algorithm " + std::to_string(int(algorithm));
      const Tensor one = with_threads(1, [&] { return run(conv, d); });
      for (const int count : {2, 3}) {
        EXPECT_TRUE(same_bytes(one, with_threads(count, [&] { return run(conv, d); }))) << what << ", " << count;
        for (const int64_t n : {int64_t{1}, t.n - 1})
          EXPECT_TRUE(same_bytes(images(one, 0, n), with_threads(count, [&] { return run(conv, first(d, n)); })))
              << what << ", " << n << " of the images, " << count << " threads";
      }
    }
  }
}

TEST(ConvPrepared, ChoosesByTheImageAlone) {
  const Case small = many(kResNet[4], 1), wide = many(kResNet[1], 1);
  const auto chosen = [](const Case& t) { return prepare(t, draw_prepared(t)).algorithm; };
  EXPECT_EQ(chosen(wide), ConvAlgorithm::winograd_4x4);
  EXPECT_EQ(chosen(small), ConvAlgorithm::winograd_2x2);  // its weights are half as large
  EXPECT_EQ(chosen(many(small, 64)), chosen(small));
  EXPECT_EQ(chosen(kResNet[0]), ConvAlgorithm::direct);
  EXPECT_EQ(chosen(kResNet[5]), ConvAlgorithm::direct);
  const ArithmeticScope scope(&Arithmetic::exact_convolutions, true);
  EXPECT_EQ(chosen(wide), ConvAlgorithm::direct);
}

TEST(ConvPrepared, MayWriteOverTheResidual) {
  for (const Case& t : cases()) {
    const PreparedData d = draw_prepared(t);
    for (const ConvAlgorithm algorithm : algorithms_of(t)) {
      const PreparedConv conv = prepare(t, d, algorithm);
      const Tensor y = cast(d.residual, DType::f64), own = cast(y, DType::f32);
      conv2d_prepared(own, d.x, conv, own, true);
      EXPECT_TRUE(same_bytes(own, run(conv, d))) << t.name << ", algorithm " << int(algorithm);
    }
  }
}

TEST(ConvPrepared, HasNoBiasNoResidualAndNoReluWithoutThem) {
  for (Case t : {kResNet[1], kResNet[3], kResNet[5], kOdd[2], kOdd[20]}) {
    t.bias = false;
    PreparedData d = draw_prepared(t);
    d.residual = {}, d.relu = false;
    const Tensor want = in_f64(t, d);
    for (const ConvAlgorithm algorithm : algorithms_of(t))
      EXPECT_LE(largest_error(run(prepare(t, d, algorithm), d), want), tolerance_of(algorithm)) << t.name;
  }
}

TEST(ConvPrepared, KeepsNaN) {
  for (const Case& t : {kResNet[1], kResNet[4], kResNet[5]}) {
    const PreparedData d = draw_prepared(t);
    d.x.data<float>()[0] = NAN;
    for (const ConvAlgorithm algorithm : algorithms_of(t))
      EXPECT_TRUE(std::isnan(run(prepare(t, d, algorithm), d).data<float>()[0])) << t.name;
  }
}

TEST(ConvPrepared, AsksTheSystemForNothingOnceWarm) {
  for (const Case& t : {kResNet[0], kResNet[1], kResNet[4], kResNet[5]}) {
    const PreparedData d = draw_prepared(t);
    const PreparedConv conv = prepare(t, d);
    with_threads(2, [&] {
      run(conv, d);
      const MemoryStats before = memory_stats({});
      run(conv, d);
      EXPECT_EQ(memory_stats({}).system_allocations, before.system_allocations) << t.name;
    });
  }
}

TEST(ConvPrepared, OfNoImagesDoesNothing) {
  for (const Case& each : cases()) {
    const Case t = many(each, 0);
    const PreparedData d = draw_prepared(t);
    for (const ConvAlgorithm algorithm : algorithms_of(t)) EXPECT_EQ(run(prepare(t, d, algorithm), d).size(), 0);
  }
}

TEST(ConvPrepared, RefusesWhatDoesNotFit) {
  const Case t = kResNet[1];
  const PreparedData d = draw_prepared(t);
  const PreparedConv conv = prepare(t, d);
  const auto refused = [&]<class E>(const Tensor& y, const Tensor& x, const Tensor& residual) {
    return message_of<E>([&] { conv2d_prepared(y, x, conv, residual.defined() ? View(residual) : View{}, true); });
  };
  const Tensor y = empty_like(d.residual), x = d.x, turned = permute(x, {0, 2, 1, 3});
  EXPECT_MENTIONS(refused.operator()<ShapeError>(y, turned, {}), "contiguous images of (32, 32, 64)");
  EXPECT_MENTIONS(refused.operator()<ShapeError>(images(y, 0, 1), x, {}), "y is (1, 32, 32, 64); expected 2");
  EXPECT_MENTIONS(refused.operator()<ShapeError>(y, x, images(y, 0, 1)), "the residual is (1,");
  EXPECT_MENTIONS(refused.operator()<DTypeError>(y, cast(x, DType::f16), {}), "x is f16");
  const auto prepared = [&]<class E>(const Tensor& w, const Shape& image, DType dtype) {
    return message_of<E>([&] { prepare_conv2d(w, View{}, t.window, image, dtype); });
  };
  EXPECT_MENTIONS(prepared.operator()<DTypeError>(d.w, {32, 32, 64}, DType::f64), "images of f64");
  EXPECT_MENTIONS(prepared.operator()<DTypeError>(cast(d.w, DType::bf16), {32, 32, 64}, DType::f32), "expected f32");
  EXPECT_MENTIONS(prepared.operator()<ShapeError>(d.w, {32, 32, 65}, DType::f32), "(H, W, C)");
  EXPECT_MENTIONS(prepared.operator()<ShapeError>(permute(d.w, {0, 2, 1, 3}), {32, 32, 64}, DType::f32), "contiguous");
}

TEST(ConvPrepared, RefusesAnotherInstructionSet) {
  const Case t = kResNet[1];
  const PreparedData d = draw_prepared(t);
  PreparedConv conv = prepare(t, d);
  conv.isa = conv.isa == CpuIsa::portable ? CpuIsa::avx2 : CpuIsa::portable;
  EXPECT_MENTIONS(message_of<DeviceError>([&] { run(conv, d); }), "prepare it again");
}

}  // namespace
}  // namespace ringtape
