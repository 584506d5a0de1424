// Pooling, padding and flipping beside PyTorch's numbers (tests/fixtures/make_images.py).
#include "kernels/pool.h"

#include <limits>
#include <map>

#include "autograd/create.h"
#include "nn/nn.h"
#include "tests/support/support.h"
#include "train/io/safetensors.h"

namespace ringtape {
namespace {

using test::expect_close;
using test::values;

// Elements of a window two apart, around an image of one row: PyTorch gives -inf too.
TEST(Pool, AWindowOfPaddingAloneHasNoLargestElement) {
  const Window window{2, 4, 1, 1, 2, 2};
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16, DType::f16}) {
    const Tensor x = leaf(full({1, 1, 8, 3}, 2, dtype)), y = max_pool2d(x, 2, 2, window);
    ASSERT_EQ(y.shape(), Shape({1, 1, 2, 3}));
    EXPECT_EQ(values(y), std::vector<double>(6, -std::numeric_limits<double>::infinity())) << name_of(dtype);
    backward(y, ones(y.shape(), dtype));
    EXPECT_EQ(values(grad(x)), std::vector<double>(24, 0)) << name_of(dtype);
    EXPECT_EQ(values(avg_pool2d(x, 2, 2, window)), std::vector<double>(6, 0)) << name_of(dtype);
  }
}

TEST(Pool, GivesPyTorchsValuesAndGradients) {
  const std::map<std::string, Tensor (*)(const Tensor&)> cases = {
      {"max_2x2", [](const Tensor& x) { return nn::MaxPool2d(2)(x); }},
      {"max_3x3", [](const Tensor& x) { return nn::MaxPool2d(3, 2, 1)(x); }},
      {"max_dilated",
       [](const Tensor& x) {
         return max_pool2d(x, 3, 2, {2, 1, 1, 0, 1, 2});
       }},
      {"avg_2x2", [](const Tensor& x) { return nn::AvgPool2d(2)(x); }},
      {"avg_3x3", [](const Tensor& x) { return nn::AvgPool2d(3, 2, 1)(x); }},
      {"avg_rectangular",
       [](const Tensor& x) {
         return avg_pool2d(x, 3, 2, {1, 3, 1, 0, 1, 1});
       }},
      {"global",
       [](const Tensor& x) {
         return reshape(nn::GlobalAvgPool()(x), {2, 1, 1, 5});
       }},
      {"pad", [](const Tensor& x) { return pad2d(x, 1, 2, 3, 0, 0.25); }},
      {"flip", [](const Tensor& x) { return flip(x, 2); }},
  };
  const Safetensors file = read_safetensors(std::string(RINGTAPE_SOURCE_DIR) + "/tests/fixtures/pool.safetensors");
  for (const auto& [name, call] : cases) {
    SCOPED_TRACE(name);
    const Tensor x = leaf(file[name + "/x"]), y = call(x);
    expect_close(y, file[name + "/y"], 1e-14, 1e-14, "value");
    backward(y, file[name + "/dy"]);
    expect_close(grad(x), file[name + "/dx"], 1e-14, 1e-14, "gradient");
  }
}

TEST(Pool, TheFirstOfEqualsAndAnyNaNWin) {
  const double nan = std::numeric_limits<double>::quiet_NaN(), inf = std::numeric_limits<double>::infinity();
  const auto image = [](const std::vector<double>& x) { return from_host(x, {1, 2, 2, 1}); };
  const auto index = [&](const Tensor& x) {
    Tensor y({1, 1, 1, 1}, DType::f64), at({1, 1, 1, 1}, DType::i32);
    max_pool2d_forward(y, at, x, 2, 2, square_window(2));
    return std::pair{y.item(), at.item()};
  };
  EXPECT_EQ(index(image({1, 3, 3, 2})), (std::pair{3.0, 1.0}));
  EXPECT_EQ(index(image({-inf, -inf, -inf, -inf})), (std::pair{-inf, 0.0}));
  const auto [top, place] = index(image({1, nan, 7, 2}));
  EXPECT_NE(top, top);
  EXPECT_EQ(place, 1);
}

TEST(Pool, LayoutsOfTheOutsideWorldAndBack) {
  const Tensor x = rand({3, 5, 4, 7});
  const Tensor images = to_nhwc(x);
  EXPECT_EQ(images.shape(), (Shape{3, 4, 7, 5}));
  EXPECT_EQ(images.data<float>()[((2 * 4 + 1) * 7 + 3) * 5 + 4], x.data<float>()[((2 * 5 + 4) * 4 + 1) * 7 + 3]);
  EXPECT_TRUE(test::same_bytes(to_nchw(images), x));
}

// Few channels, whole tiles and what is left of them, each element where it belongs.
TEST(Pool, LayoutsMoveEveryElement) {
  for (DType dtype : {DType::u8, DType::f16, DType::f32, DType::f64})
    for (int64_t c : {1, 2, 3, 4, 5, 32, 64, 71})
      for (int64_t w : {1, 7, 40}) {
        SCOPED_TRACE(concat(dtype, ", ", c, " channels, width ", w));
        const int64_t n = 2, h = 13;
        const Tensor x = cast(rand({n, c, h, w}, 0, 250), dtype);
        const std::vector<double> from = values(x), to = values(to_nhwc(x));
        size_t i = 0, wrong = 0;
        for (int64_t a = 0; a < n; ++a)
          for (int64_t y = 0; y < h; ++y)
            for (int64_t z = 0; z < w; ++z)
              for (int64_t k = 0; k < c; ++k) wrong += to[i++] != from[size_t(((a * c + k) * h + y) * w + z)];
        EXPECT_EQ(wrong, 0u);
        EXPECT_TRUE(test::same_bytes(to_nchw(to_nhwc(x)), x));
      }
}

}  // namespace
}  // namespace ringtape
