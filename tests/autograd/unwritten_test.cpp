// Memory that is filled before it is handed out shows results that nobody has written.
#include <limits>

#include "autograd/create.h"
#include "autograd/ops.h"
#include "autograd/tape.h"
#include "core/memory_fill.h"
#include "tests/support/support.h"

namespace ringtape {
namespace {

// Sets the byte, and restores what was.
class Filled {
 public:
  explicit Filled(int byte) : before_(memory_fill()) { set_memory_fill(byte); }
  ~Filled() { set_memory_fill(before_); }

 private:
  int before_;
};

constexpr int kOther = 0x42;

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
