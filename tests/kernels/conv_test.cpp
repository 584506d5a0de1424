// conv2d on the CPU against plain sums in f64, for every algorithm, instruction set, dtype and number of threads.
#include <algorithm>
#include <cmath>

#include "autograd/create.h"
#include "autograd/ops.h"
#include "kernels/conv2d.h"
#include "tests/support/support.h"

namespace ringtape {
namespace {

using test::same_bytes;
using test::values;
using test::with_threads;

struct Case {
  std::string name;
  int64_t n, h, w, c, k, r, s;
  Window window;
  int64_t groups = 1;
  bool bias = false;

  int64_t rows() const { return window.rows(h, r); }
  int64_t columns() const { return window.columns(w, s); }
};

struct Data {
  Tensor x, w, b, dy;
};
Data draw(const Case& t, DType dtype = DType::f32) {
  manual_seed(3);
  Data d{randn({t.n, t.h, t.w, t.c}), randn({t.k, t.r, t.s, t.c / t.groups}), t.bias ? randn({t.k}) : Tensor{},
         randn({t.n, t.rows(), t.columns(), t.k})};
  for (Tensor* tensor : {&d.x, &d.w, &d.b, &d.dy})
    if (tensor->defined()) *tensor = cast(*tensor, dtype);
  return d;
}

struct Result {
  Tensor y, dx, dw;
};
Result run(const Case& t, const Data& d) {
  Result out{empty_like(d.dy), empty_like(d.x), empty_like(d.w)};
  conv2d_forward(out.y, d.x, d.w, d.b, t.window);
  conv2d_backward_data(out.dx, d.dy, d.w, t.window);
  conv2d_backward_weights(out.dw, d.dy, d.x, t.window);
  return out;
}

struct Exact {
  std::vector<double> y, dx, dw;
};
Exact exact(const Case& t, const Data& d) {
  const std::vector<double> x = values(d.x), w = values(d.w), dy = values(d.dy);
  const std::vector<double> b = t.bias ? values(d.b) : std::vector<double>(size_t(t.k));
  Exact out{std::vector<double>(dy.size()), std::vector<double>(x.size()), std::vector<double>(w.size())};
  const int64_t cg = t.c / t.groups, kg = t.k / t.groups;
  const Window& p = t.window;
  for (size_t i = 0; i < dy.size(); ++i) out.y[i] = b[i % size_t(t.k)];
  for (int64_t place = 0; place < t.n * t.rows() * t.columns(); ++place)
    for (int64_t tap = 0; tap < t.r * t.s; ++tap) {
      const int64_t n = place / (t.rows() * t.columns()), i = place / t.columns() % t.rows(), j = place % t.columns();
      const int64_t row = i * p.stride_h - p.pad_h + tap / t.s * p.dilation_h,
                    col = j * p.stride_w - p.pad_w + tap % t.s * p.dilation_w;
      if (row < 0 || row >= t.h || col < 0 || col >= t.w) continue;
      for (int64_t k = 0; k < t.k; ++k) {
        const int64_t in = ((n * t.h + row) * t.w + col) * t.c + k / kg * cg, weight = (k * t.r * t.s + tap) * cg;
        const double g = dy[size_t(place * t.k + k)];
        double sum = 0;
        for (int64_t c = 0; c < cg; ++c) {
          sum += x[size_t(in + c)] * w[size_t(weight + c)];
          out.dx[size_t(in + c)] += g * w[size_t(weight + c)];
          out.dw[size_t(weight + c)] += g * x[size_t(in + c)];
        }
        out.y[size_t(place * t.k + k)] += sum;
      }
    }
  return out;
}

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

struct ExactConvolutions {
  bool before = exact_convolutions();
  explicit ExactConvolutions(bool on) { set_exact_convolutions(on); }
  ~ExactConvolutions() { set_exact_convolutions(before); }
};

struct Isa {
  CpuIsa before = cpu_isa();
  explicit Isa(CpuIsa isa) { set_cpu_isa(isa); }
  ~Isa() { set_cpu_isa(before); }
};

constexpr double kWinogradError = 1e-4, kDirectError = 3e-6;

const Case kResNet[] = {{"stem", 2, 32, 32, 3, 64, 3, 3, square_window(1, 1)},
                        {"64", 2, 32, 32, 64, 64, 3, 3, square_window(1, 1)},
                        {"128", 2, 16, 16, 128, 128, 3, 3, square_window(1, 1)},
                        {"256", 2, 8, 8, 256, 256, 3, 3, square_window(1, 1)},
                        {"512", 2, 4, 4, 512, 512, 3, 3, square_window(1, 1)},
                        {"64-128", 2, 32, 32, 64, 128, 3, 3, square_window(2, 1)},
                        {"128-256", 2, 16, 16, 128, 256, 3, 3, square_window(2, 1)},
                        {"256-512", 2, 8, 8, 256, 512, 3, 3, square_window(2, 1)},
                        {"64-128 1x1", 2, 32, 32, 64, 128, 1, 1, square_window(2)},
                        {"256-512 1x1", 2, 8, 8, 256, 512, 1, 1, square_window(2)}};

TEST(Conv, IsCloseToExactSumsForEveryLayerOfResNet18) {
  for (const Case& t : kResNet) {
    const Data d = draw(t);
    const Exact want = exact(t, d);
    for (bool on : {false, true}) {
      const ExactConvolutions scope(on);
      const Result got = run(t, d);
      expect_near(got, want, on ? kDirectError : kWinogradError, t.name + (on ? ", exact" : ""));
    }
  }
}

// Winograd's from 16 channels on: every padding, tiles that reach beyond the image, one
// block and several, incomplete vectors.
const Case kOdd[] = {
    {"one pixel", 1, 1, 1, 16, 16, 3, 3, square_window(1, 1)},
    {"one place", 1, 3, 3, 17, 19, 3, 3, square_window(1)},
    {"5x7", 1, 5, 7, 17, 19, 3, 3, square_window(1, 1), 1, true},
    {"no padding", 2, 9, 6, 33, 16, 3, 3, square_window(1), 1, true},
    {"padding 2", 1, 6, 7, 16, 50, 3, 3, square_window(1, 2)},
    {"paddings", 2, 7, 8, 20, 24, 3, 3, {1, 1, 0, 2, 1, 1}},
    {"many tiles", 8, 33, 31, 16, 17, 3, 3, square_window(1, 1), 1, true},
    {"many deep tiles", 3, 30, 29, 200, 16, 3, 3, square_window(1, 1)},
    {"few channels", 2, 6, 5, 1, 19, 3, 3, square_window(1, 1), 1, true},
    {"one output channel", 1, 5, 7, 17, 1, 3, 3, square_window(1, 1), 1, true},
    {"5x5", 1, 9, 8, 3, 7, 5, 5, square_window(1, 2), 1, true},
    {"7x7 stride 2", 1, 15, 14, 3, 20, 7, 7, square_window(2, 3)},
    {"stride 3, 2", 2, 11, 10, 6, 5, 3, 2, {3, 2, 1, 0, 1, 1}},
    {"dilation 2", 1, 9, 9, 4, 6, 3, 3, square_window(1, 2, 2)},
    {"dilation 2, stride 2", 1, 9, 11, 4, 6, 3, 3, square_window(2, 2, 2)},
    {"dilation 3, stride 2", 1, 12, 9, 18, 6, 2, 3, square_window(2, 3, 3)},
    {"stride beyond the kernel", 1, 9, 9, 5, 4, 1, 2, square_window(3)},
    {"1x1", 3, 5, 7, 40, 33, 1, 1, square_window(1), 1, true},
    {"grouped", 2, 6, 5, 12, 8, 3, 3, square_window(1, 1), 4, true},
    {"grouped, stride 2", 1, 7, 8, 34, 6, 3, 3, square_window(2, 1), 2},
    {"depthwise", 2, 6, 7, 19, 19, 3, 3, square_window(1, 1), 19, true},
    {"depthwise, stride 2, twice as many", 1, 7, 9, 17, 34, 5, 3, square_window(2, 2), 17},
    {"padding beyond the kernel", 1, 2, 3, 4, 5, 3, 3, square_window(1, 4)},
    {"pixels beyond a block", 2, 20, 19, 5, 9, 3, 3, square_window(1, 1)}};

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

TEST(Conv, SwitchesWinogradOff) {
  const Case& t = kResNet[1];
  const Data d = draw(t);
  const auto with = [&](bool on) {
    const ExactConvolutions scope(on);
    EXPECT_EQ(exact_convolutions(), on);
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
