// Convolutions by Hopper's own instructions, beside those by mma.sync and in f64.
#include <cmath>
#include <optional>

#include "autograd/autocast.h"
#include "autograd/create.h"
#include "autograd/ops.h"
#include "core/cuda/device.h"
#include "kernels/arithmetic.h"
#include "kernels/conv_norm.h"
#include "nn/nn.h"
#include "tests/support/conv_cases.h"
#include "tests/support/cuda_support.h"
#include "tests/support/cuda_tensors.h"
#include "tests/support/noise.h"
#include "tests/support/support.h"
#include "tests/support/wgmma_cases.h"

namespace ringtape {
namespace {

using namespace test::wgmma;
using test::kCuda;
using test::noise;
using test::conv::norm_error;

constexpr double kSums = 1e-5;
double rounding(DType dtype) { return dtype == DType::bf16 ? 0x1p-8 : 0x1p-11; }

// Launches of kernels by wgmma; nothing where they are not counted.
std::optional<uint64_t> launches() {
#if defined(RINGTAPE_EMULATION_BUILD)
  uint64_t sum = 0;
  for (const emulation::KernelRun& k : emulation::kernels())
    if (k.name.find("wgmma_") != std::string::npos) sum += k.launches[0] + k.launches[1] + k.launches[2];
  return sum;
#else
  return {};
#endif
}

// The results of f, and how many kernels by wgmma made them.
template <class F> auto counted(const F& f) {
  const auto before = launches();
  auto out = f();
  return std::pair(out, before ? *launches() - *before : 1);
}
std::pair<Results, uint64_t> counted(const NormOperand& x, const Tensor& w, const Window& window = kWindow) {
  return counted([&] { return forward(x, w, window, true); });
}

bool same(const Tensor& a, const Tensor& b) { return test::same_bytes(to(a, Device{}), to(b, Device{})); }

bool on_hopper() {
  return cuda::wgmma_claims && available(kCuda) &&
         cuda::wgmma_claims(0, DType::bf16, {1, 32, 32, 64}, {64, 3, 3, 64}, kWindow);
}

void needs_hopper() {
  RT_NEEDS_CUDA();
  if (!on_hopper()) GTEST_SKIP() << "no GPU of compute capability 9.0, or a build without 90a";
}
class CudaWgmma : public testing::TestWithParam<Layer> {
 protected:
  void SetUp() override { needs_hopper(); }
};
class CudaWgmmaForward : public CudaWgmma {};

TEST_P(CudaWgmmaForward, IsNearF64) {
  const Layer& c = GetParam();
  const Operands exact = operands(c, DType::f64, DType::f64, Device{});
  const Results in_f64 = forward(exact.normalized(), exact.w, kWindow, false);
  const Tensor dw_in_f64 = weights(exact.normalized(), exact.dy, c.weights(), false);
  const bool plain_too = c.channels == 128;  // of others: those of whole numbers below
  const Results plain_in_f64 = plain_too ? forward({exact.x}, exact.w, kWindow, false) : Results{};
  const Tensor plain_dw = plain_too ? weights({exact.x}, exact.dy, c.weights(), false) : Tensor();
  for (const DType dtype : {DType::bf16, DType::f16}) {
    SCOPED_TRACE(std::string(name_of(dtype)));
    const Operands o = operands(c, dtype, DType::f32, kCuda);
    const auto [got, launched] = counted(o.normalized(), o.w);
    EXPECT_EQ(launched, 1u);
    EXPECT_LE(norm_error(got.y, test::values(in_f64.y)), 2 * rounding(dtype));
    EXPECT_LE(norm_error(got.mean, test::values(in_f64.mean)), 2 * rounding(dtype));
    EXPECT_LE(norm_error(got.var, test::values(in_f64.var)), 2 * rounding(dtype));
    const auto [dw, launched_for_dw] = counted([&] { return weights(o.normalized(), o.dy, c.weights(), true); });
    EXPECT_EQ(launched_for_dw, 1u);
    EXPECT_LE(norm_error(dw, test::values(dw_in_f64)), 2 * rounding(dtype));
    if (plain_too) {
      EXPECT_LE(norm_error(forward({o.x}, o.w, kWindow, true).y, test::values(plain_in_f64.y)), 2 * rounding(dtype));
      EXPECT_LE(norm_error(weights({o.x}, o.dy, c.weights(), true), test::values(plain_dw)), 2 * rounding(dtype));
    }
    const Tensor y = cast(to(got.y, Device{}), DType::f64);  // its sums are of what was written
    const Tensor mean = ringtape::mean(y, {0, 1, 2}), var = ringtape::mean(square(y - mean), {0, 1, 2});
    EXPECT_LE(norm_error(got.mean, test::values(mean)), kSums);
    EXPECT_LE(norm_error(got.var, test::values(var)), kSums);
  }
}

std::string name_of_layer(const testing::TestParamInfo<Layer>& info) {
  return concat(info.param.channels, "_at_", info.param.width, "_n", info.param.n);
}
const Layer kLayers[] = {{1, 32, 64}, {3, 16, 64}, {1, 16, 128}, {1, 32, 128}, {3, 8, 128}, {5, 4, 128}};
INSTANTIATE_TEST_SUITE_P(Layers, CudaWgmmaForward, testing::ValuesIn(kLayers), name_of_layer);

class CudaWgmmaData : public CudaWgmma {};

TEST_P(CudaWgmmaData, IsNearF64) {
  const Layer& c = GetParam();
  const auto run = [&](const Operands& o, bool normalized) {
    const NormOperand x = normalized ? o.normalized() : NormOperand{o.x};
    return data(x, o.dy, o.w, normalized ? Tensor() : o.x, true);
  };
  const Operands exact = operands(c, DType::f64, DType::f64, Device{});
  for (const bool normalized : {false, true}) {
    const Gradients want = run(exact, normalized);
    for (const DType dtype : {DType::bf16, DType::f16}) {
      SCOPED_TRACE(concat(dtype, normalized ? ", normalised" : ""));
      const Operands o = operands(c, dtype, DType::f32, kCuda);
      const auto [got, launched] = counted([&] { return run(o, normalized); });
      EXPECT_EQ(launched, 1u);
      for (Tensor Gradients::*const g : {&Gradients::dx, &Gradients::db, &Gradients::dw})
        EXPECT_LE((want.*g).defined() ? norm_error(got.*g, test::values(want.*g)) : 0, 2 * rounding(dtype));
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Layers, CudaWgmmaData, testing::ValuesIn(kLayers), name_of_layer);

class CudaWgmmaWhole : public CudaWgmma {};

// Of numbers whose sums are exact every order gives the same: those in f64, rounded where they are written.
TEST_P(CudaWgmmaWhole, NumbersAreThoseInF64) {
  const Layer& c = GetParam();
  const Operands exact = operands(c, DType::f64, DType::f64, Device{}, true);
  const Tensor y = forward({exact.x}, exact.w, kWindow, false).y, dw = weights({exact.x}, exact.dy, c.weights(), false),
               dx = data({exact.x}, exact.dy, exact.w, {}, false).dx;
  fill(exact.mean, 1), fill(exact.shift, 0);  // exactly 0 before the ReLU, where there is no gradient
  const Gradients gated = data(exact.normalized(), exact.dy, exact.w, {}, false);
  for (const DType dtype : {DType::bf16, DType::f16}) {
    if (c.channels > 64 && dtype == DType::f16) continue;
    const Operands o = operands(c, dtype, DType::f32, kCuda, true);
    EXPECT_TRUE(same(forward({o.x}, o.w, kWindow, true).y, cast(y, dtype))) << name_of(dtype);
    EXPECT_TRUE(same(weights({o.x}, o.dy, c.weights(), true), cast(dw, DType::f32)));
    const Tensor rounded = cast(cast(dx, dtype), DType::f32) + cast(exact.x, DType::f32);
    EXPECT_TRUE(same(data({o.x}, o.dy, o.w, o.x, true).dx, cast(rounded, dtype)));
    fill(o.mean, 1), fill(o.shift, 0);
    const Gradients got = data(o.normalized(), o.dy, o.w, {}, true);
    EXPECT_LE(norm_error(got.dx, test::values(gated.dx)), 2 * rounding(dtype));
    EXPECT_LE(norm_error(got.dw, test::values(gated.dw)), rounding(dtype));
    std::vector<double> db(size_t(c.channels));  // of what is written
    const auto dz = test::values(cast(dx, dtype)), x = test::values(o.x), scale = test::values(o.scale);
    for (size_t i = 0; i < x.size(); ++i)
      if ((x[i] - 1) * scale[i % scale.size()] > 0) db[i % scale.size()] += dz[i];
    EXPECT_EQ(test::values(got.db), db);
  }
}

// Of the emulation's four blocks some have a tile more than others; of some tiles images are missing.
const Layer kWhole[] = {{2, 32, 64}, {5, 16, 64}, {5, 16, 128}, {17, 8, 128}, {5, 8, 256}, {65, 4, 128}};
INSTANTIATE_TEST_SUITE_P(Layers, CudaWgmmaWhole, testing::ValuesIn(kWhole), name_of_layer);

// The widest layer of ResNet-18: what four blocks share, and eight blocks of channels that each of them streams.
class CudaWgmmaWidest : public CudaWgmma {};
TEST_P(CudaWgmmaWidest, NumbersAreThoseInF64) {
  const Layer& c = GetParam();
  const Operands exact = operands(c, DType::f64, DType::f64, Device{}, true),
                 o = operands(c, DType::bf16, DType::f32, kCuda, true);
  const Tensor y = cast(forward({exact.x}, exact.w, kWindow, false).y, DType::bf16);
  EXPECT_TRUE(same(forward({o.x}, o.w, kWindow, true).y, y));
  const Tensor dw = cast(weights({exact.x}, exact.dy, c.weights(), false), DType::f32);
  EXPECT_TRUE(same(weights({o.x}, o.dy, c.weights(), true), dw));
  const Tensor dx = data({exact.x}, exact.dy, exact.w, {}, false).dx;
  const Tensor rounded = cast(cast(dx, DType::bf16), DType::f32) + cast(exact.x, DType::f32);
  const auto [got, launched] = counted([&] { return data({o.x}, o.dy, o.w, o.x, true); });
  EXPECT_EQ(launched, 1u);
  EXPECT_TRUE(same(got.dx, cast(rounded, DType::bf16)));
}
INSTANTIATE_TEST_SUITE_P(Layers, CudaWgmmaWidest, testing::Values(Layer{2, 4, 512}), name_of_layer);

class CudaWgmmaOthers : public CudaWgmma {};

// They are left to the other kernels, which give their bytes.
TEST_P(CudaWgmmaOthers, AreByOtherKernels) {
  const Layer& c = GetParam();
  const Operands o = operands(c, DType::bf16, DType::f32, kCuda);
  const auto [got, launched] = counted(o.normalized(), o.w);
  EXPECT_TRUE(!launches() || launched == 0);
  EXPECT_TRUE(same(got.y, forward(o.normalized(), o.w, kWindow, false).y));
  const auto [back, launched_back] = counted([&] { return data({o.x}, o.dy, o.w, o.x, true); });
  EXPECT_TRUE(!launches() || launched_back == 0);
  EXPECT_TRUE(same(back.dx, data({o.x}, o.dy, o.w, o.x, false).dx));
}
const Layer kOthers[] = {{2, 15, 64}, {1, 7, 128}, {1, 8, 64}, {1, 16, 96}, {0, 16, 64}};
INSTANTIATE_TEST_SUITE_P(Layers, CudaWgmmaOthers, testing::ValuesIn(kOthers), name_of_layer);

TEST_P(CudaWgmma, LeavesOtherOperandsToOtherKernels) {
  const Layer& c = GetParam();
  const Operands o = operands(c, DType::bf16, DType::f32, kCuda);
  Operands moved = o;
  moved.x = test::cuda(to(o.x, Device{}), 1);
  const Window strided = square_window(2, 1);
  for (const auto& [x, window] : {std::pair(moved.normalized(), kWindow), std::pair(o.normalized(), strided)}) {
    const auto [got, launched] = counted(x, o.w, window);
    EXPECT_TRUE(!launches() || launched == 0);
    EXPECT_LE(norm_error(got.y, test::values(forward(o.normalized(), o.w, window, false).y)), rounding(DType::bf16));
  }
  for (const Tensor& skip : {Tensor(), moved.x}) {
    const auto [got, launched] = counted([&] { return data({o.x}, o.dy, o.w, skip, true); });
    EXPECT_TRUE(!launches() || launched == 0);
    EXPECT_TRUE(same(got.dx, data({o.x}, o.dy, o.w, skip, false).dx));
  }
}

// Sums per channel of numbers far from 0, next to which their deviation is small; and what is not finite.
TEST_P(CudaWgmma, MomentsNearALargeMeanAndOfWhatIsNotFinite) {
  const Layer& c = GetParam();
  Operands o = operands(c, DType::f16, DType::f32, kCuda);
  fill(o.w, 0);
  for (int64_t i = 0; i < c.channels; ++i)
    fill(slice(slice(slice(slice(o.w, 0, i, i + 1), 1, 1, 2), 2, 1, 2), 3, i, i + 1), 32);
  fill(o.x, 32), fill(slice(o.x, 1, 0, c.width / 2), 32 + 0x1p-3f);  // y is 1024 or 1028
  const Results got = forward({o.x}, o.w, kWindow, true);
  EXPECT_EQ(test::values(got.mean), std::vector<double>(size_t(c.channels), 1026));
  EXPECT_EQ(test::values(got.var), std::vector<double>(size_t(c.channels), 4));
  fill(slice(slice(slice(o.x, 1, 2, 3), 2, 3, 4), 3, 5, 6), NAN);
  const auto classes = [&](const Tensors& results) {
    std::vector<int> out;
    for (const Tensor& t : results)
      for (const double v : test::values(to(t, Device{}))) out.push_back(std::fpclassify(v));
    return out;
  };
  fill(slice(slice(slice(o.dy, 1, 7, 8), 2, 8, 9), 3, 2, 3), INFINITY);
  const auto by = [&](bool wgmma) {
    const Results y = forward({o.x}, o.w, kWindow, wgmma);
    const Gradients g = data(o.normalized(), o.dy, o.w, {}, wgmma);
    return classes({y.y, y.mean, y.var, g.dx, g.db, g.dw});
  };
  EXPECT_EQ(by(true), by(false));
}
INSTANTIATE_TEST_SUITE_P(Layers, CudaWgmma, testing::Values(Layer{1, 16, 64}, Layer{1, 16, 128}), name_of_layer);

// What is beside the images of a last tile would be infinite if it were normalised.
TEST(CudaWgmmaImages, ThatAreNotThereTakeNoPart) {
  needs_hopper();
  if (testing::Test::IsSkipped()) return;
  const Layer c = {1, 8, 128};
  const auto run = [&](DType dtype, DType wide, Device device, bool wgmma) {
    Operands o = operands(c, dtype, wide, device, true);
    o.w = operands(c, dtype, wide, device).w;
    o.x = o.x + full({1}, 1000, dtype, device);
    fill(o.mean, 1000), fill(o.var, 1), fill(o.scale, -100), fill(o.shift, 1);
    const Results y = forward(o.normalized(), o.w, kWindow, wgmma);
    return Tensors{y.y, y.mean, y.var, weights(o.normalized(), o.dy, c.weights(), wgmma)};
  };
  const Tensors want = run(DType::f64, DType::f64, Device{}, false), got = run(DType::f16, DType::f32, kCuda, true);
  for (size_t i = 0; i < want.size(); ++i) EXPECT_LE(norm_error(got[i], test::values(want[i])), 0x1p-8) << i;
}

// A residual block, forward and backward, chooses them by its setting; its numbers are those of the fused one.
class CudaWgmmaBlock : public CudaWgmma {};
TEST_P(CudaWgmmaBlock, IsAsTheFusedOne) {
  const Layer& c = GetParam();
  const auto train = [&](Fusing fusing) {
    const ArithmeticScope now(&Arithmetic::fusing, fusing);
    manual_seed(7);
    nn::BasicBlock block(c.channels, c.channels, 1);
    nn::move_to(block, kCuda);
    const Tensor x = leaf(to(cast(noise(c.image(), 1), DType::bf16), kCuda));
    Tensor y;
    {
      const Autocast halves(DType::bf16);
      y = block(x);
    }
    backward(y, to(cast(noise(y.shape(), 2), DType::bf16), kCuda));
    std::vector<Tensor> out = {y, grad(x)};
    for (const nn::Named& p : nn::named_parameters(block)) out.push_back(grad(*p.tensor));
    for (Tensor& t : out) t = cast(to(t, Device{}), DType::f64);
    return out;
  };
  const auto before = launches();
  const std::vector<Tensor> got = train(Fusing::with_wgmma);
  EXPECT_TRUE(!before || *launches() == *before + 6);  // two convolutions, three passes
  const std::vector<Tensor> want = train(Fusing::always);
  EXPECT_TRUE(!before || *launches() == *before + 6);
  for (size_t i = 0; i < got.size(); ++i) EXPECT_LE(norm_error(got[i], test::values(want[i])), 0.01) << "tensor " << i;
}

INSTANTIATE_TEST_SUITE_P(Layers, CudaWgmmaBlock, testing::Values(Layer{1, 16, 64}), name_of_layer);

TEST(CudaWgmmaProbe, TheGpuReadsDescriptorsAsExpected) {
  RT_NEEDS_CUDA();
  if (const auto& p = cuda::properties(0); p.major != 9 || p.minor != 0) GTEST_SKIP() << "only 9.0 has them";
  EXPECT_TRUE(on_hopper()) << "the line above says what it reads otherwise; without one, this build is not for 90a";
}

#if defined(RINGTAPE_EMULATION_BUILD)

// Of a GPU that reads descriptors otherwise, other kernels compute, and a line says so. The tests have two GPUs.
TEST(CudaWgmmaProbe, AnotherMeaningLeavesTheKernelsOff) {
  struct Restore {
    emulation::Gpu before = emulation::gpu();
    ~Restore() { emulation::set_gpu(before); }
  } const restore;
  emulation::Gpu other = restore.before;
  other.other_descriptors = true;
  emulation::set_gpu(other);
  testing::internal::CaptureStderr();
  for (int i = 0; i < 2; ++i)
    EXPECT_FALSE(cuda::wgmma_claims(1, DType::bf16, {1, 16, 16, 64}, {64, 3, 3, 64}, kWindow));
  const std::string said = testing::internal::GetCapturedStderr(), line = "kernels by wgmma are not used";
  EXPECT_MENTIONS(said, "cuda:1: wgmma reads operands along their outer index otherwise than the manual says: " + line);
  EXPECT_EQ(said.find(line), said.rfind(line)) << "once";
}

#endif

}  // namespace
}  // namespace ringtape
