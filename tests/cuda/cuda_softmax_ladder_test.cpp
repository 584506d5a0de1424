// The kernels of docs/kernels.md: each step gives the softmax, and the page shows what the emulation counts.
#include <cmath>
#include <fstream>
#include <limits>

#include "core/random.h"
#include "core/text.h"
#include "docs/kernels/softmax_ladder.h"
#include "tests/support/cuda_support.h"
#include "tests/support/support.h"
#if defined(RINGTAPE_EMULATION_BUILD)
#include "tests/support/traffic.h"
#endif

namespace ringtape {
namespace {

using test::kCuda;

constexpr float kInf = std::numeric_limits<float>::infinity();

using SoftmaxLadder = test::OnCuda;

// From -4 to 4 around `offset`, in steps of 1/8.
Tensor rows_of(int64_t rows, int64_t columns, float offset = 0) {
  Tensor x({rows, columns});
  for (int64_t i = 0; i < x.size(); ++i)
    x.data<float>()[i] = offset + float(philox(7, 0, uint64_t(i)).x[0] % 65) / 8 - 4;
  return x;
}

Tensor run(const ladder::Step& step, const Tensor& host) {
  const Tensor x = host.copy_to(kCuda), y(host.shape(), DType::f32, kCuda);
  step.run(View(x).as<float>(), View(y).as<float>(), host.dim(0), host.dim(1));
  return y.copy_to(Device{});
}

// An element is exp(x - top) / sum. Its relative error, in units of 2^-24, is the total of
//   - that of the difference, at most `spread` = top - x: in the element, in the sum and in what corrects the sum;
//   - 4 of each expf (2 ulp, as CUDA documents), and 3 of the division, or of 1 / sum and the product;
//   - n of a sum of n positive terms, in any order;
//   - 6 for each time that step 3 corrects a sum: n / 256 times in a thread, 10 times among threads.
// What is below the smallest normal number may be lost.
void expect_softmax(const Tensor& host, const Tensor& y, double spread, const std::string& what) {
  const int64_t rows = host.dim(0), columns = host.dim(1);
  const double relative = (2 * double(columns) + 3 * spread + 80) * 0x1p-24, absolute = 0x1p-126;
  for (int64_t r = 0; r < rows; ++r) {
    const float* const x = host.data<float>() + r * columns;
    double top = -kInf, sum = 0;
    for (int64_t c = 0; c < columns; ++c) top = x[c] > top || x[c] != x[c] ? x[c] : top;
    for (int64_t c = 0; c < columns; ++c) sum += std::exp(x[c] - top);
    for (int64_t c = 0; c < columns; ++c) {
      const double expected = std::exp(x[c] - top) / sum, got = y.data<float>()[r * columns + c];
      if (std::isnan(expected) && std::isnan(got)) continue;
      ASSERT_NEAR(got, expected, relative * expected + absolute) << what << ": row " << r << ", column " << c;
    }
  }
}

void expect_softmax_of_all(const Tensor& x, double spread) {
  for (const ladder::Step& step : ladder::softmax_steps())
    expect_softmax(x, run(step, x), spread, concat("step ", step.name, " of ", x.shape()));
}

TEST_F(SoftmaxLadder, EveryStepGivesTheSoftmax) {
  for (int64_t columns : {1, 2, 31, 32, 33, 1000, 4096, 4096 + 3})
    for (int64_t rows : {1, 7, 65}) expect_softmax_of_all(rows_of(rows, columns), 8);
  for (int64_t columns : {16384, 16384 + 4}) expect_softmax_of_all(rows_of(2, columns), 8);  // the longest kept; longer
}

// exp of the element itself is infinite or 0.
TEST_F(SoftmaxLadder, OffsetsCancel) {
  for (float offset : {1e4f, -1e4f, 1e6f, -1e6f})
    for (int64_t columns : {33, 1000}) expect_softmax_of_all(rows_of(7, columns, offset), 8);
}

TEST_F(SoftmaxLadder, InfinityAndNan) {
  for (int64_t columns : {33, 1000}) {
    Tensor x = rows_of(6, columns);
    float* const p = x.data<float>();
    for (int64_t c = 0; c < columns; c += 3) p[c] = -kInf;                          // row 0: a third is masked
    for (int64_t c = 0; c < columns; ++c) p[columns + c] = c == 20 ? 1.0f : -kInf;  // row 1: all but one
    for (int64_t c = 0; c < columns; ++c) p[2 * columns + c] = -kInf;               // row 2: all, which is 0 / 0
    p[3 * columns + 5] = kInf;                                                      // row 3: inf - inf
    p[4 * columns + 30] = std::numeric_limits<float>::quiet_NaN();
    p[5 * columns + 1] = 3e38f, p[5 * columns + 2] = -3e38f;  // row 5: x - top overflows
    for (const ladder::Step& step : ladder::softmax_steps()) {
      const Tensor y = run(step, x);
      expect_softmax(x.window({3, columns}, x.strides()), y, 8, step.name);
      for (int64_t c = 0; c < columns; ++c)
        EXPECT_TRUE(std::isnan(y.data<float>()[3 * columns + c]) || c != 5) << step.name << ", column " << c;
      for (int64_t c = 0; c < columns; ++c) EXPECT_TRUE(std::isnan(y.data<float>()[4 * columns + c])) << step.name;
      for (int64_t c = 0; c < columns; ++c) EXPECT_EQ(y.data<float>()[5 * columns + c], c == 1) << step.name;
    }
  }
}

#if defined(RINGTAPE_EMULATION_BUILD)

std::string table(int64_t rows, int64_t columns) {
  std::string out =
      "| step | threads | requests | sectors | asked, KiB | moved, KiB | barriers | shuffles |\n"
      "|---|---|---|---|---|---|---|---|\n";
  const Tensor host = rows_of(rows, columns);
  for (const ladder::Step& step : ladder::softmax_steps()) {
    const emulation::Traffic t = emulation::traffic_of([&] { run(step, host); });
    EXPECT_EQ(t.uneven, 0u) << step.name;
    EXPECT_EQ(t.unmarked, 0u) << step.name << " has accesses without COUNTED()";
    const uint64_t asked = t.bytes, moved = t.sectors * emulation::Traffic::kSector;
    EXPECT_EQ(asked % 1024 + moved % 1024, 0u) << step.name;
    out += concat("| ", step.name);
    for (uint64_t n : {t.threads, t.requests, t.sectors, asked / 1024, moved / 1024, t.barriers, t.shuffles})
      out += concat(" | ", test::thousands(n));
    out += " |\n";
  }
  return out;
}

TEST_F(SoftmaxLadder, ThePageShowsWhatIsCounted) {
  std::ifstream in(RINGTAPE_SOURCE_DIR "/docs/kernels.md");
  const std::string page{std::istreambuf_iterator<char>(in), {}};
  for (const auto& [rows, columns] : {std::pair{64, 4096}, std::pair{1024, 32}}) {
    const std::string counted = table(rows, columns);
    EXPECT_NE(page.find(counted), std::string::npos) << "docs/kernels.md does not show of " << rows << " rows:\n"
                                                     << counted;
  }
}

#endif

}  // namespace
}  // namespace ringtape
