// Convolutions fused with the batch normalisation around them: the numbers of the calls one by one, bit for bit but for
// the sums per channel, and of f64 within a few roundings.
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "autograd/autocast.h"
#include "autograd/create.h"
#include "autograd/ops.h"
#include "kernels/arithmetic.h"
#include "kernels/conv_norm.h"
#include "nn/nn.h"
#include "tests/support/conv_cases.h"
#include "tests/support/conv_norm_layers.h"
#include "tests/support/cuda_support.h"
#include "tests/support/cuda_tensors.h"
#include "tests/support/noise.h"
#include "tests/support/support.h"
#include "tests/support/traffic.h"

namespace ringtape {
namespace {

using test::kCuda;
using test::kMultiplied;
using test::noise;
using test::Tf32;
using test::conv::norm_error;

const std::string plans =
    (std::filesystem::temp_directory_path() / concat("ringtape_fused_plans_", ::getpid())).string();
const int environment = [] {  // before anything reads it
  ::setenv("RINGTAPE_CONV_PLANS", plans.c_str(), 1);
  return ::setenv("RINGTAPE_CUDNN", "0", 1);
}();

constexpr double kEps = 1e-5, kSums = 1e-5;  // kSums: of moments of one tile after the other, in f32
double rounding(DType dtype) { return dtype == DType::bf16 ? 0x1p-8 : 0x1p-11; }

struct Operands {
  Tensor x, mean, var, scale, shift;  // of the normalisation before
  Tensor w, dy, skip;
  NormOperand normalized() const { return {x, mean, var, scale, shift, kEps}; }
};

Operands operands(const Layer& c, DType dtype, DType wide, Device device) {
  uint64_t seed = 0;
  const auto images = [&](const Shape& s, double mean = 0, double deviation = 1) {
    return to(cast(cast(noise(s, ++seed, mean, deviation), DType::bf16), dtype), device);
  };
  const auto channels = [&](double mean, double deviation) {
    return to(cast(cast(noise({c.c}, ++seed, mean, deviation), DType::f32), wide), device);
  };
  const double spread = 1 / std::sqrt(double(c.r * c.r * c.c));
  return {images(c.x(), 0.5, 2),          channels(0.5, 0.1), channels(4, 0.1), channels(1, 0.2), channels(0, 0.2),
          images(c.weights(), 0, spread), images(c.y()),      images(c.x())};
}

struct Results {
  Tensor y, mean, var, running_mean, running_var, dx, db, dw, of_w;
  Tensor plain_y = {}, plain_mean = {}, plain_dx = {}, plain_of_w = {};  // of x as it is; of_w in f32
};
bool large(const Layer& c) { return c.c * c.k > 128 * 128; }  // then x as it is is left out
Results run(const Layer& c, const Operands& o) {
  const auto channels = [&](int64_t n, double value) { return full({n}, value, o.mean.dtype(), o.x.device()); };
  Results out{empty_like(o.dy), channels(c.k, 0), channels(c.k, 0), channels(c.k, 2), channels(c.k, 3),
              empty_like(o.x),  channels(c.c, 0), channels(c.c, 0), empty_like(o.w)};
  const Tensor batches = zeros({}, DType::i64, o.x.device());
  const RunningUpdate running{out.running_mean, out.running_var, batches, 0.25, 1.5};
  const Window window = c.window();
  const NormOperand plain{o.x}, normalized = o.normalized();
  conv_norm_forward(out.y, out.mean, out.var, normalized, o.w, window, running);
  conv_norm_backward_data(out.dx, out.db, out.dw, o.dy, o.w, normalized, {}, window);
  conv_norm_backward_weights(out.of_w, o.dy, normalized, window);
  EXPECT_EQ(batches.item(), 1);
  if (large(c)) return out;
  out.plain_y = empty_like(o.dy), out.plain_mean = channels(c.k, 0), out.plain_dx = empty_like(o.x);
  out.plain_of_w = Tensor(o.w.shape(), o.mean.dtype(), o.x.device());
  conv_norm_forward(out.plain_y, out.plain_mean, channels(c.k, 0), plain, o.w, window, {});
  conv_norm_backward_data(out.plain_dx, {}, {}, o.dy, o.w, plain, o.skip, window);
  conv_norm_backward_weights(out.plain_of_w, o.dy, plain, window);
  return out;
}

// The launches of kernels whose names have one of these in them; 0 where they are not counted.
uint64_t fused_launches() {
  uint64_t sum = 0;
#if defined(RINGTAPE_EMULATION_BUILD)
  for (const emulation::KernelRun& k : emulation::kernels())
    for (const char* part : {"NormalizedImages", "ImagesWithMoments", "GatedImages", "SkippedImages"})
      if (k.name.find(part) != std::string::npos) {
        sum += k.launches[0] + k.launches[1] + k.launches[2];
        break;
      }
#endif
  return sum;
}

struct Fused : ArithmeticScope {
  explicit Fused(bool value) : ArithmeticScope(&Arithmetic::fusing, value ? Fusing::always : Fusing::never) {}
};

// What the fused kernels, `a`, have to do with those one by one, `b`.
void expect_one_by_one(const Layer& c, DType dtype, const Results& a, const Results& b) {
  const auto same = [](const Tensor& got, const Tensor& want, const char* what) {
    EXPECT_TRUE(test::same_bytes(to(got, Device{}), to(want, Device{}))) << what;
  };
  const auto close = [](const Tensor& got, const Tensor& want, const char* what) {
    EXPECT_LE(norm_error(got, test::values(want)), kSums) << what;
  };
  same(a.y, b.y, "y"), same(a.of_w, b.of_w, "dw");
  close(a.mean, b.mean, "mean"), close(a.var, b.var, "var");
  close(a.running_mean, b.running_mean, "running mean"), close(a.running_var, b.running_var, "running var");
  EXPECT_LE(norm_error(a.dx, test::values(b.dx)), rounding(dtype)) << "dx, after sums in another order";
  close(a.db, b.db, "db"), close(a.dw, b.dw, "dw of the normalisation");
  if (large(c)) return;
  same(a.plain_y, b.plain_y, "y of x as it is"), close(a.plain_mean, b.plain_mean, "mean of that");
  same(a.plain_dx, b.plain_dx, "dx + skip");
  EXPECT_LE(norm_error(a.plain_of_w, test::values(b.plain_of_w)), rounding(dtype)) << "dw in f32, rounded in b";
}

// With results in f64: the roundings of the operands and of the result; those of a sum's terms are independent.
void expect_near_f64(const Layer& c, DType dtype, const Results& got, const Results& want) {
  const auto close = [&](const Tensor& a, const Tensor& b, const char* what) {
    EXPECT_LE(norm_error(a, test::values(b)), 2 * rounding(dtype)) << what << ", of f64";
  };
  close(got.y, want.y, "y"), close(got.mean, want.mean, "mean"), close(got.var, want.var, "var");
  close(got.dx, want.dx, "dx"), close(got.db, want.db, "db"), close(got.dw, want.dw, "dw of the normalisation");
  close(got.of_w, want.of_w, "dw");
  if (large(c)) return;
  close(got.plain_y, want.plain_y, "y of x as it is"), close(got.plain_dx, want.plain_dx, "dx + skip");
  close(got.plain_of_w, want.plain_of_w, "dw of x as it is");
}

class CudaConvNorm : public testing::TestWithParam<Layer> {
 protected:
  void SetUp() override { RT_NEEDS_CUDA(); }
};

TEST_P(CudaConvNorm, IsWhatItsCallsAreOneByOneAndF64) {
  const Layer& c = GetParam();
  const Results in_f64 = run(c, operands(c, DType::f64, DType::f64, Device{}));
  for (const DType dtype : kMultiplied) {
    if (large(c) && dtype != DType::bf16) continue;
    const Tf32 now(dtype);
    SCOPED_TRACE(std::string(name_of(dtype)));
    const Operands o = operands(c, dtype, DType::f32, kCuda);
    const uint64_t before = fused_launches();
    const Results fused = run(c, o);
    synchronize(kCuda);
    [[maybe_unused]] const uint64_t launches = fused_launches() - before;
    expect_near_f64(c, dtype, fused, in_f64);
    const Fused not_now(false);
    expect_one_by_one(c, dtype, fused, run(c, o));
#if defined(RINGTAPE_EMULATION_BUILD)
    EXPECT_EQ(launches, c.n == 0 ? 0u : large(c) ? 3u : 5u);
    EXPECT_EQ(fused_launches() - before, launches);
#endif
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, CudaConvNorm, testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.name); });

using CudaResidualBlock = test::OnCuda;

// Sums per channel of numbers far from 0, next to which their deviation is small.
TEST_F(CudaResidualBlock, VarianceNearALargeMean) {
  std::vector<float> places;
  for (int64_t i = 0; i < 4 * 8 * 8 * 32; ++i) places.push_back(i / 32 % 2 == 0 ? 1 : 1 + 0x1p-8f);
  const Tensor x = to(cast(from_host(places, {4, 8, 8, 32}), DType::f16), kCuda),  // y is 1024 or 1028
      w = full({32, 1, 1, 32}, 32, DType::f16, kCuda), y = empty_like(x);
  const Tensor mean({32}, DType::f32, kCuda), var({32}, DType::f32, kCuda);
  conv_norm_forward(y, mean, var, {x}, w, {}, {});
  EXPECT_EQ(test::values(mean), std::vector<double>(32, 1026));
  EXPECT_EQ(test::values(var), std::vector<double>(32, 4));
}

// So many tiles that their sums are combined by several blocks.
TEST_F(CudaResidualBlock, ManyTiles) {
  const Layer c{"", 8, 64, 64, 32, 32, 1, 1};
  const Operands o = operands(c, DType::bf16, DType::f32, kCuda);
  Results results[2];
  for (const bool fused : {false, true}) {
    const Fused now(fused);
    Results& r = results[fused];
    for (Tensor Results::*const t : {&Results::mean, &Results::var, &Results::db, &Results::dw})
      r.*t = empty_like(o.mean);
    r.y = empty_like(o.dy), r.dx = empty_like(o.x);
    conv_norm_forward(r.y, r.mean, r.var, o.normalized(), o.w, c.window(), {});
    conv_norm_backward_data(r.dx, r.db, r.dw, o.dy, o.w, o.normalized(), {}, c.window());
  }
  EXPECT_TRUE(test::same_bytes(to(results[1].y, Device{}), to(results[0].y, Device{})));
  for (Tensor Results::*const t : {&Results::mean, &Results::var, &Results::db, &Results::dw})
    EXPECT_LE(norm_error(results[1].*t, test::values(results[0].*t)), kSums);
}

// What is not finite goes through as it does one by one: the ReLU keeps a NaN, and has no gradient there.
TEST_F(CudaResidualBlock, WhatIsNotFiniteStays) {
  const Layer c{"", 2, 4, 4, 32, 32, 1, 1};
  const Operands o = operands(c, DType::bf16, DType::f32, kCuda);
  fill(slice(slice(o.x, 0, 0, 1), 1, 2, 3), NAN), fill(slice(slice(o.x, 0, 1, 2), 1, 0, 1), INFINITY);
  const auto finite = [&](bool fused) {
    const Fused now(fused);
    const Results r = run(c, o);
    std::vector<int> out;
    for (const double v : test::values(cast(to(r.y, Device{}), DType::f64))) out.push_back(std::fpclassify(v));
    for (const double v : test::values(to(r.db, Device{}))) out.push_back(std::fpclassify(v));
    return out;
  };
  EXPECT_EQ(finite(true), finite(false));
}

// Where the normalised image is exactly 0, ReLU has no gradient.
TEST_F(CudaResidualBlock, ZeroBeforeTheRelu) {
  const Layer c{"", 2, 4, 4, 32, 32, 3, 1};
  for (const DType dtype : kMultiplied) {
    const Tf32 now(dtype);
    const Operands o = operands(c, dtype, DType::f32, kCuda);
    fill(o.mean, 0.5), fill(o.shift, 0), fill(slice(o.x, 1, 0, 3), 0.5);
    const Results a = run(c, o);
    const Fused not_now(false);
    const Results b = run(c, o);
    EXPECT_LE(norm_error(a.db, test::values(b.db)), kSums);
    EXPECT_LE(norm_error(a.dw, test::values(b.dw)), kSums);
    EXPECT_LE(norm_error(a.dx, test::values(b.dx)), rounding(dtype));
  }
}

TEST_F(CudaResidualBlock, MisalignedOperandsAreNotFused) {
  const Layer c{"", 2, 4, 4, 32, 32, 3, 1};
  const Operands o = operands(c, DType::bf16, DType::f32, kCuda);
  const Results want = run(c, o);
  // An operand, and how many of the five calls are fused still without it.
  const std::pair<Tensor Operands::*, uint64_t> cases[] = {
      {&Operands::x, 1}, {&Operands::w, 1}, {&Operands::dy, 2}, {&Operands::skip, 4}};
  for (const auto& [which, still] : cases) {
    Operands moved = o;
    moved.*which = test::cuda(to(o.*which, Device{}), 1);
    synchronize(kCuda);
    [[maybe_unused]] const uint64_t before = fused_launches();
    const Results got = run(c, moved);
    synchronize(kCuda);
#if defined(RINGTAPE_EMULATION_BUILD)
    EXPECT_EQ(fused_launches() - before, still);
#endif
    for (Tensor Results::*const result : {&Results::y, &Results::dx, &Results::plain_dx, &Results::of_w})
      EXPECT_LE(norm_error(got.*result, test::values(want.*result)), rounding(DType::bf16));
  }
}

// The output of a block, the gradients of its input and parameters, and its running statistics.
std::vector<Tensor> train_block(int64_t stride, Device device, DType dtype = DType::bf16,
                                const std::string& frozen = "none") {
  const Tf32 now(dtype);
  manual_seed(7);
  nn::BasicBlock block(32, stride == 1 ? 32 : 64, stride);
  nn::freeze(block, [&](const std::string& name) { return name.starts_with(frozen); });
  nn::move_to(block, device);
  const Tensor x = leaf(to(cast(noise({3, 6, 6, 32}, 1), dtype), device));
  Tensor y;
  {
    const Autocast halves(dtype);
    y = block(x);
  }
  backward(y, to(cast(noise(y.shape(), 2), dtype), device));
  std::vector<Tensor> out = {y, grad(x)};
  for (const nn::Named& p : nn::named_parameters(block)) out.push_back(grad(*p.tensor));
  for (const nn::Named& b : nn::named_buffers(block)) out.push_back(*b.tensor);
  for (Tensor& t : out) t = cast(to(t, Device{}), DType::f64);
  return out;
}

TEST_F(CudaResidualBlock, OfANetworkIsFused) {
  const ArithmeticScope exact(&Arithmetic::exact_convolutions, true);  // the CPU's
  for (const auto& [stride, dtype] : {std::pair(1, DType::bf16), std::pair(2, DType::bf16), std::pair(2, DType::f32)}) {
    SCOPED_TRACE(concat("stride ", stride, ", ", dtype));
    const uint64_t before = fused_launches();
    std::vector<Tensor> fused;
    {
      const Fused now(true);
      fused = train_block(stride, kCuda, dtype);
    }
    const std::vector<Tensor> on_cpu = train_block(stride, Device{}, dtype);
    [[maybe_unused]] const uint64_t launches = fused_launches() - before;
    const Fused not_now(false);
    const std::vector<Tensor> one_by_one = train_block(stride, kCuda, dtype);
#if defined(RINGTAPE_EMULATION_BUILD)
    EXPECT_GT(launches, 0u);
    EXPECT_EQ(fused_launches() - before, launches);
#endif
    for (size_t i = 0; i < fused.size(); ++i) {
      // Other sums move some roundings, and with them ReLUs of numbers near 0.
      const double share = dtype == DType::f32 ? 0.1 : 1;
      EXPECT_LE(norm_error(fused[i], test::values(one_by_one[i])), 0.01 * share) << "tensor " << i;
      EXPECT_LE(norm_error(fused[i], test::values(on_cpu[i])), 0.03 * share) << "tensor " << i << ", of the CPU";
    }
  }
}

TEST_F(CudaResidualBlock, ALayerThatNormalisesOtherwiseIsNotFused) {
  for (const char* const frozen : {"bn1", "bn2", "downsample.1"}) {
    const uint64_t before = fused_launches();
    std::vector<Tensor> got;
    {
      const Fused now(true);
      got = train_block(2, kCuda, DType::bf16, frozen);
    }
    EXPECT_EQ(fused_launches(), before) << frozen;
    const Fused not_now(false);
    const std::vector<Tensor> want = train_block(2, kCuda, DType::bf16, frozen);
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < got.size(); ++i)
      EXPECT_TRUE(test::same_bytes(got[i], want[i])) << frozen << ", tensor " << i;
  }
}

TEST_F(CudaResidualBlock, ChoicesAreKept) {
  using enum BlockKernels;
  const BlockShape block{kCuda, DType::bf16, {8, 4, 4, 32}, {32, 3, 3, 32}, 1};
  BlockShape other = block;
  other.x = {9, 4, 4, 32};
  AskedBlocks asked;
  EXPECT_EQ(block_kernels(block), one_by_one);  // it was not measured
  for (const BlockKernels kept : {wgmma, one_by_one, fused}) {
    keep_block_kernels(block, kept);  // the last one counts
    EXPECT_EQ(block_kernels(block), kept);
  }
  EXPECT_EQ(block_kernels(other), one_by_one);
  for (const auto& [set, want] :
       {std::pair(Fusing::never, one_by_one), std::pair(Fusing::always, fused), std::pair(Fusing::with_wgmma, wgmma)}) {
    const ArithmeticScope now(&Arithmetic::fusing, set);
    EXPECT_EQ(block_kernels(block), want);
  }
  EXPECT_EQ(block_kernels(block), fused);
  {
    const ArithmeticScope unmeasured(&Arithmetic::deterministic_convolutions, true);
    EXPECT_EQ(block_kernels(block), one_by_one);
  }
  EXPECT_EQ(asked.blocks, (std::vector<BlockShape>{block, other}));
  BlockShape f32 = block, few = block, on_cpu = block, many = block;
  f32.dtype = DType::f32, few.w = {48, 3, 3, 32}, on_cpu.device = {}, many.w = {1 << 20, 3, 3, 32};
  for (const BlockShape& b : {f32, few, on_cpu, many}) EXPECT_EQ(block_kernels(b), one_by_one);
  EXPECT_EQ(asked.blocks.size(), 2u);
  const Tf32 now;
  for (const BlockKernels kept : {fused, one_by_one}) {
    keep_block_kernels(f32, kept);
    EXPECT_EQ(block_kernels(f32), kept);
  }
  std::ifstream file(plans);
  std::string text((std::istreambuf_iterator<char>(file)), {});
  EXPECT_MENTIONS(text, "stride 1\tone by one\n");
  std::filesystem::remove(plans);
}

#if defined(RINGTAPE_EMULATION_BUILD)

// In whole sectors, without a conflict of banks, and less of them than by calls one by one.
TEST_F(CudaResidualBlock, MovesWholeSectors) {
  const Layer c{"", 2, 16, 16, 64, 64, 3, 1};
  for (const DType dtype : {DType::bf16, DType::f32}) {
    const Tf32 now(dtype);
    const Operands o = operands(c, dtype, DType::f32, kCuda);
    const Tensor y = empty_like(o.dy), dx = empty_like(o.x), dw = zeros(o.w.shape(), DType::f32, kCuda);
    const Tensor mean = empty_like(o.mean), var = empty_like(mean), db = empty_like(mean), da = empty_like(mean);
    const auto expect_good = [&](const char* pass, const std::function<void()>& f, double share = 0.9) {
      test::expect_whole_sectors(concat(pass, ", ", dtype), f, share);
    };
    expect_good("forward", [&] { conv_norm_forward(y, mean, var, o.normalized(), o.w, c.window(), {}); });
    // The pass with BatchNorm's gradient takes 8 floats, two halves of a sector.
    expect_good(
        "data", [&] { conv_norm_backward_data(dx, db, da, o.dy, o.w, o.normalized(), {}, c.window()); },
        dtype == DType::f32 ? 0.85 : 0.9);
    expect_good("weights", [&] { conv_norm_backward_weights(dw, o.dy, o.normalized(), c.window()); });
  }
}

#endif

}  // namespace
}  // namespace ringtape
