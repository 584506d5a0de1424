// Automatic augmentation on the CPU: each operation compared with torchvision on PIL images
// (tests/fixtures/make_policies.py), and what is drawn.
#include "kernels/image_policy.h"

#include <zlib.h>

#include <array>
#include <cmath>

#include "kernels/image_policy_pixels.h"
#include "tests/support/isas.h"
#include "tests/support/support.h"
#include "train/io/safetensors.h"

namespace ringtape {
namespace {

using test::with_every_isa;

constexpr ImagePolicy kRand{.kind = PolicyKind::rand_augment, .ops = 1}, kTrivial{.kind = PolicyKind::trivial_augment};
constexpr uint64_t kSeed = 3, kEpoch = 8;

Tensor identity_table(int64_t channels) {
  Tensor out({channels, 256}, DType::u8);
  for (int64_t i = 0; i < out.size(); ++i) out.data<uint8_t>()[i] = uint8_t(i);
  return out;
}

// A sample whose first operation is this one.
int64_t sample_of(const PolicyParams& p, int op, bool negative) {
  for (int64_t sample = 0;; ++sample) {
    const PolicyStep step = draw_policy_step(p, sample, 0);
    if (int(step.op) == op && step.negative == negative) return sample;
  }
}

int32_t checksum(const Tensor& y, int64_t b) {
  const int64_t size = y.size() / y.dim(0);
  return int32_t(crc32_z(0, y.data<uint8_t>() + b * size, size_t(size)));
}

// Copies of one image, one for each operation and sign.
struct Case {
  Tensor images, index{Shape{2 * kPolicyOps}, DType::i64};
  Case(const Tensor& x, const PolicyParams& p) : images(x.shape().with(0, 2 * kPolicyOps), DType::u8) {
    for (int64_t b = 0; b < images.dim(0); ++b) {
      std::copy_n(x.data<uint8_t>(), x.size(), images.data<uint8_t>() + b * x.size());
      index.data<int64_t>()[b] = sample_of(p, int(b / 2), b % 2 != 0);
    }
  }
};

TEST(ImagePolicy, OperationsArePilsByteForByte) {
  const Safetensors file = read_safetensors(std::string(RINGTAPE_SOURCE_DIR) + "/tests/fixtures/policies.safetensors");
  constexpr int kImages = 11;
  for (int image = 0; image < kImages; ++image) {
    const Tensor x = file[concat("x/", image)];
    for (const ImagePolicy& policy : {kRand, kTrivial}) {
      const std::string name = concat(policy.kind == PolicyKind::trivial_augment ? "trivial/" : "rand/", image);
      const int32_t* want = file[name].data<int32_t>();
      PolicyParams params(policy, x.dim(1), x.dim(2), kSeed, kEpoch, true);
      const Case in(x, params);
      params.bins = 1;
      for (int bin = 0; bin < kPolicyBins; ++bin) {
        params.first_bin = bin;
        Tensor y(in.images.shape(), DType::u8);
        image_policy(y, in.images, in.index, identity_table(x.dim(3)), params);
        for (int b = 0; b < 2 * kPolicyOps; ++b)
          ASSERT_EQ(checksum(y, b), want[b * kPolicyBins + bin])
              << name << ", operation " << b / 2 << (b % 2 ? " negative" : "") << " by " << bin;
      }
    }
  }
}

Tensor noise(const Shape& shape) {
  Tensor out(shape, DType::u8);
  for (int64_t i = 0; i < out.size(); ++i) out.data<uint8_t>()[i] = uint8_t(uint64_t(i) * 2654435761u >> 13);
  return out;
}

Tensor numbers(int64_t n) {
  Tensor out({n}, DType::i64);
  for (int64_t i = 0; i < n; ++i) out.data<int64_t>()[i] = n - 1 - i;
  return out;
}

Tensor run(const Tensor& images, const Tensor& table, const ImagePolicy& policy, uint64_t seed = kSeed,
           uint64_t epoch = kEpoch) {
  Tensor y(images.shape(), table.dtype());
  image_policy(y, images, numbers(images.dim(0)), table,
               PolicyParams(policy, images.dim(1), images.dim(2), seed, epoch, false));
  return y;
}

TEST(ImagePolicy, SeveralOperationsFollowOneAnother) {
  const Tensor images = noise({40, 12, 9, 3}), table = identity_table(3);
  const ImagePolicy three{.kind = PolicyKind::rand_augment, .ops = 3, .magnitude = 17};
  const Tensor y = run(images, table, three);
  for (int64_t b = 0; b < 40; ++b) {
    PolicyParams p(three, 12, 9, kSeed, kEpoch, true);
    Tensor x({1, 12, 9, 3}, DType::u8), to = empty_like(x);
    std::copy_n(images.data<uint8_t>() + (39 - b) * 324, 324, x.data<uint8_t>());
    p.ops = 1;
    for (int64_t k = 0; k < 3; ++k) {
      const PolicyStep step = draw_policy_step(p, 39 - b, k);
      const Tensor index = numbers(1);
      index.data<int64_t>()[0] = sample_of(p, int(step.op), step.negative);
      image_policy(to, x, index, table, p);
      std::swap(x, to);
    }
    EXPECT_TRUE(std::equal(x.data<uint8_t>(), x.data<uint8_t>() + 324, y.data<uint8_t>() + b * 324)) << "image " << b;
  }
}

TEST(ImagePolicy, EveryInstructionSetThreadCountAndDtypeAgrees) {
  for (const ImagePolicy& policy : {ImagePolicy{.kind = PolicyKind::rand_augment, .ops = 4, .magnitude = 23}, kTrivial})
    for (const int64_t channels : {1, 3}) {
      const Tensor images = noise({90, 21, 33, channels}), table = identity_table(channels);
      const Tensor reference = run(images, table, policy);
      with_every_isa([&] {
        for (int threads : {1, 3})
          EXPECT_TRUE(
              test::same_bytes(test::with_threads(threads, [&] { return run(images, table, policy); }), reference));
      });
      for (DType dtype : {DType::f32, DType::bf16, DType::f64})
        dispatch_float(dtype, [&]<class T>() {
          Tensor floats(table.shape(), dtype);
          for (int64_t i = 0; i < table.size(); ++i) floats.data<T>()[i] = T(compute_t<T>(i % 256));
          const Tensor y = run(images, floats, policy);
          for (int64_t i = 0; i < y.size(); ++i)
            ASSERT_EQ(compute_t<T>(y.data<T>()[i]), compute_t<T>(reference.data<uint8_t>()[i]));
        });
      EXPECT_FALSE(test::same_bytes(run(images, table, policy, kSeed + 1), reference));
      EXPECT_FALSE(test::same_bytes(run(images, table, policy, kSeed, kEpoch + 1), reference));
    }
}

TEST(ImagePolicy, NoneIsTheTable) {
  const Tensor images = noise({1, 7, 6, 3});
  EXPECT_TRUE(test::same_bytes(run(images, identity_table(3), {}), images));
}

TEST(ImagePolicy, OperationsStrengthsAndSignsAreAllAlikeOften) {
  const PolicyParams p(kTrivial, 32, 32, 1, 2, false);
  constexpr int64_t kDraws = 43'400;
  std::array<int64_t, kPolicyOps> ops{};
  std::array<int64_t, kPolicyBins> bins{};
  int64_t negative = 0, same = 0;
  for (int64_t i = 0; i < kDraws; ++i) {
    const PolicyStep step = draw_policy_step(p, i, 0);
    ++ops[size_t(step.op)], ++bins[size_t(step.bin)], negative += step.negative;
    same += step.op == draw_policy_step(p, i, 1).op;
  }
  for (int64_t count : ops) EXPECT_NEAR(count, kDraws / kPolicyOps, 230);  // more than four standard deviations
  for (int64_t count : bins) EXPECT_NEAR(count, kDraws / kPolicyBins, 160);
  EXPECT_NEAR(negative, kDraws / 2, 450);
  EXPECT_NEAR(same, kDraws / kPolicyOps, 230);
  const PolicyParams fixed({.kind = PolicyKind::rand_augment, .magnitude = 12}, 32, 32, 1, 2, false);
  for (int64_t i = 0; i < 100; ++i) EXPECT_EQ(draw_policy_step(fixed, i, 1).bin, 12);
}

TEST(ImagePolicy, RefusesWhatCannotBe) {
  const auto refused = [](const ImagePolicy& what) {
    return test::message_of<UsageError>([&] { PolicyParams(what, 8, 8, 0, 0, false); });
  };
  EXPECT_MENTIONS(refused({.ops = 0}), "0 operations");
  EXPECT_MENTIONS(refused({.ops = 17}), "1 to 16");
  EXPECT_MENTIONS(refused({.magnitude = 31}), "strength 31");
  EXPECT_MENTIONS(test::message_of<ShapeError>([] { check_policy({8, 8, 2}); }), "1 or 3 channels");
  EXPECT_THROW(check_policy({8, 0, 3}), ShapeError);
  EXPECT_THROW(check_policy({16000, 8000, 3}), ShapeError);
  check_policy({8, 8, 1});
}

}  // namespace
}  // namespace ringtape
