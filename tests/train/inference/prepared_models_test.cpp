// Every network, prepared: beside evaluation mode, in every precision, for images of odd sizes, any batch, any threads.
#include <cmath>

#include "autograd/autocast.h"
#include "autograd/prepared.h"
#include "tests/support/support.h"
#include "tests/support/trained_models.h"

namespace ringtape {
namespace {

using test::same_bytes;
using test::values;

double largest_of(const Tensor& x) {
  double out = 0;
  for (const double v : values(x)) out = std::max(out, std::abs(v));
  return out;
}

double apart(const Tensor& a, const Tensor& b) { return largest_of(cast(a, DType::f64) - cast(b, DType::f64)); }

struct Case {
  const ModelEntry* entry;
  std::unique_ptr<nn::Module> network;
  Shape image;

  std::string text(DType precision) const { return concat(entry->name, " of ", image, " in ", precision); }
  Tensor images(int64_t count) const { return randn({count, image[0], image[1], image[2]}); }
  std::unique_ptr<const Prepared> prepared(DType precision = DType::f32) const {
    return Prepared::of([this](const Tensor& x) { return (*network)(x); }, image, precision);
  }
  Tensor evaluated(const Tensor& x, DType precision = DType::f32) const {
    const NoGrad no_grad;
    const Autocast autocast(precision);
    return (*network)(x);
  }
};

// Each network, small, for images of several sizes, of one and of three channels.
std::vector<Case> cases() {
  std::vector<Case> out;
  for (const ModelEntry& entry : models())
    for (const Shape& image :
         {Shape{28, 28, 1}, Shape{32, 32, 3}, Shape{33, 47, 3}, Shape{19, 12, 3}, Shape{113, 120, 3}}) {
      const ModelSpec spec{image, 7, test::small_settings(entry)};
      const int64_t step = entry.multiple ? entry.multiple(spec) : 0;
      const bool fits =
          step > 0 ? image[0] % step == 0 && image[1] % step == 0 : image[0] == image[1] && image[0] <= 32;
      if (fits) out.push_back({&entry, test::trained_model(entry, spec), image});
    }
  return out;
}

TEST(PreparedModels, AreEvaluationModeTo1e5OfTheLargestLogit) {
  int count = 0;
  for (const Case& c : cases()) {
    const auto prepared = c.prepared();
    ASSERT_TRUE(prepared) << c.text(DType::f32);
    for (const int64_t images : {1, 5}) {
      const Tensor x = c.images(images), y = (*prepared)(x), want = c.evaluated(x);
      ASSERT_EQ(y.shape(), want.shape()) << c.text(DType::f32);
      EXPECT_LE(apart(y, want), 1e-5 * largest_of(want)) << c.text(DType::f32);
    }
    ++count;
  }
  EXPECT_GE(count, 25);
}

// Of 16 bits: not further from f32 than evaluation mode is, but for chance.
TEST(PreparedModels, AreAsCloseToF32AsEvaluationModeIs) {
  for (const Case& c : cases())
    for (const DType precision : {DType::bf16, DType::f16}) {
      const auto prepared = c.prepared(precision);
      ASSERT_TRUE(prepared) << c.text(precision);
      const Tensor x = c.images(8), y = (*prepared)(x), full = c.evaluated(x), want = c.evaluated(x, precision);
      EXPECT_EQ(y.dtype(), want.dtype());
      const double unit = precision == DType::bf16 ? 0x1p-8 : 0x1p-11;
      EXPECT_LE(apart(y, full), 2 * apart(want, full) + 4 * unit * largest_of(full)) << c.text(precision);
    }
}

TEST(PreparedModels, GiveAnImageTheSameBytesInAnyBatchByAnyThreads) {
  for (const Case& c : cases())
    for (const DType precision : {DType::f32, DType::bf16}) {
      const auto prepared = c.prepared(precision);
      const Tensor x = c.images(11), all = (*prepared)(x);
      for (const int threads : {1, 2, 3})
        test::with_threads(threads, [&] {
          EXPECT_TRUE(same_bytes((*prepared)(x), all)) << c.text(precision) << ", " << threads << " threads";
          for (const auto& [begin, end] : {std::pair{0, 1}, {4, 7}, {2, 11}})
            EXPECT_TRUE(
                same_bytes((*prepared)(contiguous(slice(x, 0, begin, end))), contiguous(slice(all, 0, begin, end))))
                << c.text(precision) << ", " << threads << " threads, images " << begin << " to " << end;
        });
      EXPECT_TRUE(same_bytes((*c.prepared(precision))(x), all)) << c.text(precision) << ", prepared again";
    }
}

// Of full width, in more images than go through the steps together.
TEST(PreparedModels, OfFullWidthAndManyImages) {
  for (const char* name : {"resnet18", "fashion_cnn", "mlp"}) {
    const ModelEntry& entry = find_model(name);
    const Shape image{28, 28, 1};
    const Case c{&entry, test::trained_model(entry, {image, 10, entry.settings}), image};
    const auto prepared = c.prepared();
    ASSERT_TRUE(prepared) << name;
    const Tensor x = c.images(131), y = (*prepared)(x), want = c.evaluated(x);
    EXPECT_LE(apart(y, want), 1e-5 * largest_of(want)) << name;
    for (const auto& [begin, end] : {std::pair{0, 1}, {64, 130}, {130, 131}})
      EXPECT_TRUE(same_bytes((*prepared)(contiguous(slice(x, 0, begin, end))), contiguous(slice(y, 0, begin, end))))
          << name << ", images " << begin << " to " << end;
  }
}

}  // namespace
}  // namespace ringtape
