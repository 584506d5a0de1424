// Results that nobody has written: every op's samples under memory that is filled with one
// byte and then another give the same bytes.
#include <limits>

#include "autograd/create.h"
#include "autograd/ops.h"
#include "autograd/tape.h"
#include "core/memory_fill.h"
#include "kernels/kernel.h"
#include "tests/support/isas.h"
#include "tests/support/op_samples.h"

namespace ringtape {
namespace {

using test::identical;
using test::Result;
using test::run;

// Sets the byte, and restores what was.
class Filled {
 public:
  explicit Filled(int byte) : before_(memory_fill()) { set_memory_fill(byte); }
  ~Filled() { set_memory_fill(before_); }

 private:
  int before_;
};

// What nobody has written is NaN, and an ordinary number: a maximum or a comparison could hide either one.
constexpr int kOther = 0x42;

template <class F>
void expect_all_written(const std::string& what, const F& f) {
  const auto under = [&](int byte) {
    const Filled filled(byte);
    return f();
  };
  EXPECT_TRUE(identical(under(kPoisonByte), under(kOther))) << what;
}

TEST(MemoryFill, IsWhatNewMemoryHolds) {
  for (const int byte : {kPoisonByte, kOther}) {
    const Filled filled(byte);
    for (const int64_t n : {1, 17, 1000, 1 << 20}) {
      const Tensor x({n}, DType::u8);
      for (int64_t i = 0; i < n; ++i) ASSERT_EQ(int(x.data<uint8_t>()[i]), byte) << i << " of " << n;
      const Tensor cleared = zeros({n}, DType::u8);
      for (int64_t i = 0; i < n; ++i) ASSERT_EQ(int(cleared.data<uint8_t>()[i]), 0) << i << " of " << n;
    }
  }
  const Filled filled(kPoisonByte);
  for (const DType dtype : {DType::f16, DType::bf16, DType::f32, DType::f64}) {
    const double value = test::values(Tensor({1}, dtype))[0];
    EXPECT_NE(value, value) << name_of(dtype);
  }
}

class EveryOp : public testing::TestWithParam<Op> {};

TEST_P(EveryOp, WritesAllOfItsResults) {
  const Op& op = GetParam();
  test::with_every_isa([&] {
    for (const DType dtype : {DType::f32, DType::f64, DType::bf16, DType::f16})
      for (const Sample& sample : op.samples)
        expect_all_written(concat(sample.tag, ", ", dtype),
                           [&] { return run(op, sample, draw(sample, dtype, 1, op.kinks)); });
  });
}

// An op without such samples has them refused.
TEST_P(EveryOp, HasASampleWithoutElements) {
  const auto empty = [](const Sample& sample) {
    for (const Input& input : sample.inputs)
      if (input.shape.size() == 0) return true;
    return false;
  };
  bool found = false;
  for (const auto& samples : {GetParam().samples, GetParam().invalid})
    for (const Sample& sample : samples) found = found || empty(sample);
  EXPECT_TRUE(found);
}

INSTANTIATE_TEST_SUITE_P(Ops, EveryOp, testing::ValuesIn(ops()),
                         [](const auto& info) { return std::string(info.param.name); });

// Sizes that the records' samples are too small for: blocks of both of Winograd's kinds,
// products of several blocks, a batch of none.
TEST(Unwritten, ConvolutionsOfNoImagesHaveNoGradient) {
  const Filled filled(kPoisonByte);
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::f64})
    for (const Shape& weights : {Shape{16, 3, 3, 16}, {64, 3, 3, 64}, {96, 3, 3, 128}, {64, 1, 1, 64}, {32, 5, 5, 8}})
      for (const int64_t stride : {1, 2}) {
        const Tensor w = leaf(ones(weights, dtype)), b = leaf(ones({weights[0]}, dtype)),
                     x = leaf(Tensor({0, 8, 8, weights[3]}, dtype));
        backward(sum(conv2d(x, w, b, square_window(stride, weights[1] / 2))));
        for (const Tensor& t : {w, b})
          for (const double g : test::values(grad(t)))
            ASSERT_EQ(g, 0) << weights.str() << " " << name_of(dtype) << ", stride " << stride;
      }
}

}  // namespace
}  // namespace ringtape
