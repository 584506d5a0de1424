// Products and convolutions by our own kernels on tensor cores, of 16-bit operands and of f32 as TF32, without cuBLASLt
// and cuDNN. Of whole numbers whose sums are exact in f32 they are the CPU's bit for bit.
#include <cstdlib>
#include <map>

#include "autograd/create.h"
#include "autograd/ops.h"
#include "autograd/tape.h"
#include "tests/support/conv_cases.h"
#include "tests/support/cuda_support.h"
#include "tests/support/cuda_tensors.h"
#include "tests/support/nearest.h"
#include "tests/support/noise.h"
#include "tests/support/support.h"
#include "tests/support/traffic.h"

namespace ringtape {
namespace {

using test::Guarded;
using test::kCuda;
using test::kMultiplied;
using test::noise;
using test::Tf32;
using test::whole_numbers;
using test::conv::norm_error;

const int only_own = [] {  // before anything reads the variables
  ::setenv("RINGTAPE_CUBLAS", "0", 1);
  return ::setenv("RINGTAPE_CUDNN", "0", 1);
}();

using CudaTensorCores = test::OnCuda;
constexpr DType kHalves[] = {DType::bf16, DType::f16};
int64_t pack_of(DType dtype) { return 16 / size_of(dtype); }

Tensor numbers(const Shape& shape, DType dtype, uint64_t seed) { return cast(whole_numbers(shape, seed), dtype); }

void expect_same(const Tensor& got, const Tensor& want, const std::string& what) {
  EXPECT_TRUE(test::same_bytes(to(got, Device{}), want)) << what;
}

// Whether tensor cores do what `f` launches is known where that is counted.
void expect_products([[maybe_unused]] bool some, [[maybe_unused]] const std::string& what,
                     const std::function<void()>& f) {
#if defined(RINGTAPE_EMULATION_BUILD)
  EXPECT_EQ(emulation::traffic_of(f).products > 0, some) << what;
#else
  f();
#endif
}

struct Sizes {
  int64_t batch, m, n, k;
};
const Sizes kSizes[] = {{1, 8, 8, 8},    {1, 72, 40, 16},   {1, 1, 8, 16},    {1, 136, 72, 40},
                        {2, 16, 64, 64}, {1, 264, 200, 96}, {3, 40, 24, 8},   {1, 24, 136, 0},
                        {1, 0, 16, 8},   {1, 7, 33, 160},   {1, 128, 128, 32}};

TEST_F(CudaTensorCores, ProductsOfWholeNumbersAreExact) {
  for (const DType dtype : kMultiplied) {
    const Tf32 now(dtype);
    const int64_t pack = pack_of(dtype);
    for (const Sizes& s : kSizes)
      for (const bool a_transposed : {false, true})
        for (const bool w_transposed : {false, true}) {
          const std::string what = concat(dtype, " ", s.batch, " x ", s.m, " x ", s.n, " x ", s.k,
                                          a_transposed ? " a transposed" : "", w_transposed ? " w transposed" : "");
          const auto operand = [&](int64_t rows, int64_t columns, bool transposed, uint64_t seed, Device device) {
            const Shape shape = transposed ? Shape{s.batch, columns, rows} : Shape{s.batch, rows, columns};
            const Tensor x = to(numbers(shape, dtype, seed), device);
            return transposed ? transpose(x) : x;
          };
          const auto product = [&](Device device) {
            return matmul(operand(s.m, s.k, a_transposed, 1, device), operand(s.k, s.n, w_transposed, 2, device));
          };
          // Packs lie together along the depth, or along the outer index.
          const bool packed = (a_transposed ? s.m : s.k) % pack == 0 && (w_transposed ? s.k : s.n) % pack == 0;
          Tensor got;
          expect_products(packed && s.m * s.n * s.k > 0, what, [&] { got = product(kCuda); });
          expect_same(got, product(Device{}), what);
        }
  }
}

// Operands are rounded to 11 bits of significand, ties away from zero, wherever they lie; and only if that is allowed.
TEST_F(CudaTensorCores, FloatsAreRoundedToTf32WhereThatIsAllowed) {
  const float one = 1 + 0x1p-11f, below = 1 + 0x1p-11f - 0x1p-23f;
  std::vector<float> ones(64);
  for (size_t i = 0; i < 8; ++i) ones[i * 9] = 1;
  const Tensor id = to(from_host(ones, {8, 8}), kCuda);
  for (const bool allowed : {false, true}) {
    const Tf32 now(allowed);
    for (const auto& [x, rounded] : std::map<float, float>{{one, 1 + 0x1p-10f}, {-one, -1 - 0x1p-10f}, {below, 1}})
      for (const bool transposed : {false, true})
        for (const bool left : {false, true}) {
          const Tensor some = full({8, 8}, x, DType::f32, kCuda);
          const auto placed = [&](const Tensor& t) { return transposed ? transpose(t) : t; };
          Tensor got;
          const Tensor a = left ? placed(some) : id, w = left ? id : placed(some);
          expect_products(allowed, concat(x), [&] { got = matmul(a, w); });
          expect_same(got, full({8, 8}, allowed ? rounded : x), concat(x, allowed ? " as tf32" : ""));
        }
  }
}

TEST_F(CudaTensorCores, EpiloguesAndOperandsOfOtherPlaces) {
  for (const DType dtype : kMultiplied) {
    const Tf32 now(dtype);
    const Tensor x = numbers({70, 48}, dtype, 1), w = numbers({40, 48}, dtype, 2), b = numbers({40}, dtype, 3), none;
    for (const Activation f : {Activation::none, Activation::relu})
      for (const bool bias : {false, true})
        expect_same(linear(to(x, kCuda), to(w, kCuda), bias ? to(b, kCuda) : none, f), linear(x, w, bias ? b : none, f),
                    concat("linear ", dtype));
    for (const int64_t offset : {1, 4, 8})  // only the last is aligned
      expect_same(linear(Guarded(x, offset).x, Guarded(w, 8).x, to(b, kCuda)), linear(x, w, b),
                  concat(dtype, ", offset ", offset));
    const Tensor wide = numbers({70, 96}, dtype, 4);
    expect_same(linear(slice(to(wide, kCuda), 1, 24, 72), to(w, kCuda), none), linear(slice(wide, 1, 24, 72), w, none),
                "rows further apart");
    for (const int64_t apart : {4, 8}) {  // only the latter leaves packs aligned
      const Tensor rows = numbers({70, 48 + apart}, dtype, 7), many = numbers({512 + 2 * apart}, dtype, 8);
      const auto part = [](const Tensor& t) { return slice(t, 1, 0, 48); };
      expect_same(linear(part(to(rows, kCuda)), to(w, kCuda), none), linear(part(rows), w, none),
                  concat("rows further apart by ", apart));
      const auto pair = [&](const Tensor& t) { return t.window({2, 16, 16}, {256 + apart, 16, 1}); };
      expect_same(matmul(pair(to(many, kCuda)), pair(to(many, kCuda))), matmul(pair(many), pair(many)),
                  concat("matrices further apart by ", apart));
    }
    const Tensor shared = numbers({48, 16}, dtype, 5), many = numbers({3, 24, 48}, dtype, 6);
    expect_same(matmul(to(many, kCuda), to(shared, kCuda)), matmul(many, shared), "one w for all");
  }
}

// A sum that 16 bits do not have, next to one that they have with the bias.
TEST_F(CudaTensorCores, OnlyTheSumWithItsBiasIsRounded) {
  for (const DType dtype : kHalves) {
    const double odd = dtype == DType::bf16 ? 257 : 2049;
    const Tensor x = full({8, 8}, 1, dtype), w = zeros({8, 8}, dtype), b = full({8}, 1, dtype);
    fill(slice(w, 1, 0, 1), odd - 1), fill(slice(w, 1, 1, 2), 1);
    const Tensor want = full({8, 8}, odd + 1, dtype), y({1, 8, 1, 8}, dtype, kCuda);
    expect_same(linear(to(x, kCuda), to(w, kCuda), to(b, kCuda)), want, concat("linear in ", dtype));
    conv2d_forward(y, to(reshape(x, {1, 8, 1, 8}), kCuda), to(reshape(w, {8, 1, 1, 8}), kCuda), to(b, kCuda), {});
    expect_same(reshape(y, {8, 8}), want, concat("convolution in ", dtype));
  }
}

TEST_F(CudaTensorCores, WhatIsNotFiniteStays) {
  for (const DType dtype : kMultiplied) {
    const Tf32 now(dtype);
    Tensor x = numbers({16, 16}, dtype, 1);
    const Tensor w = numbers({16, 16}, dtype, 2);
    fill(slice(slice(x, 0, 3, 4), 1, 2, 3), NAN), fill(slice(slice(x, 0, 5, 6), 1, 7, 8), INFINITY);
    for (const Activation f : {Activation::none, Activation::relu}) {
      const std::vector<double> got = test::values(linear(to(x, kCuda), to(w, kCuda), Tensor(), f)),
                                want = test::values(linear(x, w, Tensor(), f));
      for (size_t i = 0; i < got.size(); ++i) {
        const double a = got[i], b = want[i];
        EXPECT_TRUE(a == b || (std::isnan(a) && std::isnan(b))) << i << ": " << a << ", " << b;
      }
    }
  }
}

// Embeddings that TF32 has exactly, so that products are exact; the gradients by scores are rounded to TF32.
TEST_F(CudaTensorCores, NtXent) {
  struct Case {
    int64_t rows, candidates, width;
    bool packed;
  };
  for (const Case& c : {Case{2, 2, 8, true}, Case{40, 40, 16, true}, Case{264, 300, 72, true}, Case{30, 402, 12, true},
                        Case{130, 133, 4, true}, Case{40, 44, 6, false}}) {
    const auto embeddings = [&](int64_t n, uint64_t seed) { return cast(noise({n, c.width}, seed), DType::bf16); };
    const Tensor q = embeddings(c.rows, 1), k = embeddings(c.candidates, 2);
    const auto run = [&](DType dtype, Device device, const std::string& what, bool products) {
      std::vector<Tensor> out;
      for (const bool alone : {true, false}) {
        const Tensor x = leaf(to(cast(q, dtype), device)), y = leaf(to(cast(k, dtype), device));
        Tensor loss;
        expect_products(products, what,
                        [&] { loss = alone ? nt_xent(x, x, 0, 0.5) : nt_xent(x, y, c.candidates - c.rows, 0.5); });
        expect_products(products, what + ", backward", [&] { backward(loss); });
        out.insert(out.end(), {loss, grad(x), alone ? loss : grad(y)});
      }
      return out;
    };
    const std::vector<Tensor> want = run(DType::f64, Device{}, "", false);
    for (const bool allowed : {false, true}) {
      const Tf32 now(allowed);
      const std::string what = concat(c.rows, " of ", c.candidates, " x ", c.width, allowed ? ", tf32" : "");
      const std::vector<Tensor> got = run(DType::f32, kCuda, what, allowed && c.packed);
      for (size_t i = 0; i < want.size(); ++i)
        EXPECT_LE(norm_error(got[i], test::values(want[i])), got[i].size() == 1 ? 2e-6
                                                             : allowed          ? 0x1p-11
                                                                                : 1e-5)
            << what << ", " << i;
    }
  }
}

// More sums and gradients than are stored at once.
TEST_F(CudaTensorCores, NtXentOfManyPairs) {
  const Tensor q = cast(noise({2304, 4}, 1), DType::bf16);
  const auto run = [&](DType dtype, Device device) {
    const Tensor x = leaf(to(cast(q, dtype), device)), loss = nt_xent(x, x, 0, 0.5);
    backward(loss);
    return std::vector<Tensor>{loss, grad(x)};
  };
  const std::vector<Tensor> want = run(DType::f64, Device{});
  const Tf32 now;
  reset_peak_memory(kCuda);
  std::vector<Tensor> got;
  expect_products(true, "many pairs", [&] { got = run(DType::f32, kCuda); });
  EXPECT_LT(memory_stats(kCuda).peak, 18 << 20) << "all scores are 20.25 MiB";
  EXPECT_LE(norm_error(got[0], test::values(want[0])), 2e-6);
  EXPECT_LE(norm_error(got[1], test::values(want[1])), 0x1p-11);
}

struct ConvCase {
  const char* name;
  Shape x, w;
  Window window;
};
void PrintTo(const ConvCase& c, std::ostream* out) { *out << c.name; }
const ConvCase kConvs[] = {
    {"many_channels", {2, 9, 11, 24}, {72, 3, 3, 24}, square_window(1, 1)},
    {"steps_of_a_tap", {1, 4, 5, 32}, {96, 3, 3, 32}, square_window(1, 1)},
    {"strided_steps_of_a_tap", {1, 5, 4, 96}, {32, 3, 3, 96}, square_window(2, 1)},
    {"dilated_steps_of_a_tap", {1, 8, 7, 32}, {32, 3, 2, 32}, {2, 3, 2, 1, 3, 2}},
    {"grouped_steps_of_a_tap", {1, 4, 4, 64}, {64, 2, 3, 32}, {1, 2, 2, 1, 2, 1}},
    {"one_place_strided_steps_of_a_tap", {3, 1, 1, 32}, {32, 3, 3, 32}, square_window(2, 1)},
    {"32_taps", {1, 5, 9, 32}, {32, 4, 8, 32}, {1, 2, 1, 3, 1, 1}},
    {"33_taps", {1, 4, 12, 32}, {32, 3, 11, 32}, {1, 1, 1, 2, 1, 1}},
    {"taps_far_apart", {1, 3, 2, 32}, {32, 1, 1, 32}, {1, 1, 0, 0, 1 << 30, 1 << 30}},
    {"strided", {5, 7, 6, 8}, {24, 3, 3, 8}, square_window(2, 1)},
    {"1x1", {3, 9, 9, 48}, {40, 1, 1, 48}, square_window(1)},
    {"one_place_strided", {3, 1, 1, 8}, {8, 3, 3, 8}, square_window(2, 1)},
    {"strided_dilated", {2, 9, 10, 8}, {16, 3, 2, 8}, {2, 3, 2, 1, 3, 2}},
    {"strides_and_dilations_of_a_factor", {2, 11, 13, 8}, {8, 3, 3, 8}, {2, 4, 2, 3, 2, 2}},
    {"1x1_strided", {3, 8, 9, 80}, {24, 1, 1, 80}, square_window(2)},
    {"grouped", {2, 10, 10, 32}, {16, 3, 3, 16}, {1, 1, 1, 1, 1, 1}},
    {"uneven", {2, 8, 7, 8}, {8, 2, 3, 8}, {1, 2, 2, 1, 2, 1}},
    {"one_image", {1, 32, 32, 8}, {8, 3, 3, 8}, square_window(1, 1)},
    {"chunks_of_other_lengths", {1, 20, 17, 8}, {8, 3, 3, 8}, square_window(1, 1)},
    {"groups_of_4_results", {2, 6, 6, 16}, {8, 3, 3, 8}, square_window(1, 1)},
    {"groups_of_4_channels", {2, 6, 6, 8}, {16, 3, 3, 4}, square_window(1, 1)},
    {"none", {0, 8, 8, 8}, {8, 3, 3, 8}, square_window(1, 1)},
    {"not_packed", {2, 6, 6, 12}, {20, 3, 3, 12}, square_window(1, 1)},
};

class CudaTensorCoreConv : public testing::TestWithParam<ConvCase> {
 protected:
  void SetUp() override { RT_NEEDS_CUDA(); }
};

TEST_P(CudaTensorCoreConv, OfWholeNumbersIsExact) {
  const ConvCase& c = GetParam();
  for (const DType dtype : kMultiplied) {
    const Tf32 now(dtype);
    const int64_t pack = pack_of(dtype);
    const bool packed = c.x[3] % pack == 0 && c.w[0] % pack == 0 && c.w[3] % pack == 0 && c.x[0] > 0;
    const Shape shape = {c.x[0], c.window.rows(c.x[1], c.w[1]), c.window.columns(c.x[2], c.w[2]), c.w[0]};
    const test::conv::Data data{numbers(c.x, dtype, 1), numbers(c.w, dtype, 2), numbers({c.w[0]}, dtype, 4),
                                numbers(shape, dtype, 3)};
    test::conv::Result got;
    expect_products(packed, concat(dtype),
                    [&] { got = test::conv::run(c.window, data.each([](const Tensor& t) { return to(t, kCuda); })); });
    const test::conv::Result want =
        test::conv::run(c.window, data.each([](const Tensor& t) { return cast(t, DType::f64); }));
    expect_same(got.y, cast(want.y, dtype), concat("y ", dtype));
    expect_same(got.dx, cast(want.dx, dtype), concat("dx ", dtype));
    expect_same(got.dw, cast(want.dw, dtype), concat("dw ", dtype));
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, CudaTensorCoreConv, testing::ValuesIn(kConvs),
                         [](const auto& info) { return std::string(info.param.name); });

#if defined(RINGTAPE_EMULATION_BUILD)

// In whole sectors, and without a conflict of banks but for the results on their way out.
TEST_F(CudaTensorCores, MoveWholeSectors) {
  for (const DType dtype : {DType::bf16, DType::f32}) {
    const Tf32 now(dtype);
    const Tensor x({2, 16, 16, 64}, dtype, kCuda), w({64, 3, 3, 64}, dtype, kCuda), y = empty_like(x);
    for (const Tensor& t : {x, w, y}) fill(t, 1);
    const auto expect_good = [&](const char* pass, const std::function<void()>& f) {
      EXPECT_EQ(test::expect_whole_sectors(concat(pass, ", ", dtype), f).uneven, 0u) << pass;
    };
    expect_good("forward", [&] { conv2d_forward(y, x, w, Tensor(), square_window(1, 1)); });
    expect_good("data", [&] { conv2d_backward_data(x, y, w, square_window(1, 1)); });
    expect_good("weights", [&] { conv2d_backward_weights(w, y, x, square_window(1, 1)); });
  }
}

#endif

}  // namespace
}  // namespace ringtape
