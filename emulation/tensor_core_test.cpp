// The arithmetic of tensor cores.
#include "emulation/tensor_core.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>
#include <vector>

#include "core/dtype.h"

namespace ringtape::emulation {
namespace {

// What microsoft/MMA-Sim (c785138), which was compared with GPUs, computes of random numbers: on Hopper and on Ampere.
struct Vector {
  TensorType type;
  std::vector<uint32_t> a, b;
  uint32_t c, hopper, ampere;
};
const Vector kVectors[] = {
    {TensorType::bf16,
     {0x409a, 0x3f4b, 0xbfc3, 0xbf9c, 0x3ff7, 0xbe5f, 0xbe0d, 0xbfaf, 0x3eac, 0xbccc, 0xbfaa, 0xbeb9, 0x3fd3, 0xbeff,
      0xbf23, 0xbfb7},
     {0xbeb2, 0xbf58, 0x3fea, 0xbe86, 0x4003, 0x3e9c, 0x3f22, 0xbfe7, 0xbda3, 0x3f9c, 0x3f95, 0xbfc5, 0xc024, 0xbe89,
      0xbf51, 0xc02c},
     0xbe4e8db5,
     0x3ef4bc26,
     0x3ef4bc28},
    {TensorType::bf16,
     {0x3ed0, 0x3e47, 0xc01b, 0xbe44, 0xbe2e, 0xbecc, 0xc0d9, 0x3f31, 0xc2d8, 0xbdfe, 0x40b0, 0x3f15, 0x412d, 0x3f7e,
      0x3ed2, 0xbeb7},
     {0xbf7a, 0xc006, 0xbc27, 0x3cea, 0x40c9, 0xbe62, 0xbfa6, 0x4006, 0xbec7, 0x3d91, 0x3c85, 0xbe72, 0x3fbd, 0x3e36,
      0xc105, 0xc0a4},
     0x42d58ad2,
     0x432bbba4,
     0x432bbba4},
    {TensorType::bf16,
     {0x3bd1, 0x429f, 0xbbeb, 0xbf8e, 0xbb10, 0x3ee6, 0xbd04, 0xbec7, 0x4298, 0xbecf, 0x3f5d, 0x3a85, 0xbdd1, 0xb80b,
      0xbcfa, 0x3e8f},
     {0xc000, 0xbfea, 0x3d89, 0x3db6, 0x439c, 0x3fb2, 0x3f94, 0xb90d, 0xbe4a, 0x40a9, 0x4283, 0x3abd, 0x3d84, 0x3a3a,
      0x443d, 0x42b4},
     0xc4fd6f78,
     0xc50538d8,
     0xc50538d7},
    {TensorType::bf16,
     {0x3f80, 0x40a0, 0x4000, 0xc080, 0x40e0, 0xc040, 0x4080, 0x4100, 0xc000, 0x3f80, 0xbf80, 0xc080, 0x0, 0xc040,
      0x40c0, 0xc000},
     {0x3f80, 0xc0e0, 0xbf80, 0x4000, 0xc000, 0x3f80, 0xc040, 0xc0e0, 0xc0a0, 0xc000, 0xbf80, 0xc040, 0x3f80, 0xc120,
      0x3f80, 0x8000},
     0x80000000,
     0xc2900000,
     0xc2900000},
    {TensorType::bf16,
     {0x3ae4, 0xb9a8, 0x44f8, 0x3c5d, 0xc51a, 0x403e, 0x3cbb, 0x46e9, 0xc611, 0xb876, 0xc141, 0x3ad3, 0xc98f, 0x3d75,
      0x3f53, 0xc41b},
     {0xb11d, 0xba1d, 0x4242, 0x4824, 0x4548, 0xbfa8, 0x45b2, 0xc0c4, 0xb6bb, 0xc2ee, 0x43b0, 0xbca8, 0xbef6, 0xc5a0,
      0xbd70, 0xc500},
     0xbb009c58,
     0xcabb6701,
     0xcabb6701},
    {TensorType::bf16,
     {0x9ab5, 0x18f1, 0x9ab1, 0x19b6, 0x1a20, 0x1b87, 0x1b00, 0x1bba, 0x95ca, 0x9730, 0x1939, 0x1bcd, 0x9b38, 0x9c5f,
      0x9b0c, 0x9a87},
     {0x9e09, 0x1d03, 0x9f82, 0x9d2c, 0x9f07, 0x1d75, 0x9fe9, 0x9e7c, 0x1e8d, 0x1cd1, 0x9dd6, 0x9ecd, 0x1c08, 0x9ead,
      0x1fea, 0x9d8d},
     0x80000000,
     0x80002b21,
     0x80002b22},
    {TensorType::f16,
     {0xbf94, 0x35be, 0xbc0d, 0x3721, 0x263b, 0x4242, 0x36c7, 0xb546, 0x3ae3, 0x3413, 0x3357, 0x2f59, 0x3445, 0xbc4a,
      0x35c9, 0xbd46},
     {0x3879, 0x386f, 0xb618, 0x3d53, 0xb3ea, 0x398e, 0x3dde, 0x3508, 0x3763, 0xbd16, 0x3149, 0x3a7f, 0xb6a0, 0xbc49,
      0x4330, 0xb6fd},
     0x3e97e1cc,
     0x40c6f564,
     0x40c6f563},
    {TensorType::f16,
     {0xc976, 0xa95d, 0x348d, 0x41af, 0x3c93, 0x279b, 0x2a0f, 0x321a, 0xb76f, 0xb73e, 0x3e4b, 0x2d29, 0x51ca, 0x2d28,
      0x4705, 0xb90e},
     {0xce75, 0x2941, 0xb3eb, 0x4002, 0x3403, 0x374f, 0xb602, 0xab85, 0xcda5, 0xa871, 0x5436, 0x2850, 0x2e34, 0x487f,
      0xca24, 0xafb9},
     0xc3080167,
     0x433b90f7,
     0x433b90f6},
    {TensorType::f16,
     {0x7c00, 0x2552, 0xaf6e, 0x53cb, 0xb692, 0xbec8, 0x8de9, 0x299b, 0x1a19, 0x43c9, 0x32b1, 0xa19a, 0xd090, 0xcd19,
      0x3580, 0xa72a},
     {0x3fe7, 0xafb6, 0x28aa, 0xe5fa, 0xd171, 0x47e6, 0x2832, 0x43ea, 0xdcc9, 0x8e7d, 0xbb56, 0xc1c3, 0xa5fb, 0x8002,
      0x2ecf, 0xaa2e},
     0x44d6cae7,
     0x7f800000,
     0x7f800000},
    {TensorType::f16,
     {0xc200, 0xbc00, 0x4500, 0x8000, 0xc000, 0x4200, 0xbc00, 0x4000, 0xc700, 0xbc00, 0xc800, 0xc200, 0x4900, 0x4200,
      0x4000, 0x4000},
     {0x0, 0x4500, 0x4000, 0x4000, 0xc200, 0x8000, 0xc500, 0xc000, 0xc400, 0x4000, 0xcb00, 0x0, 0x4400, 0x3c00, 0x3c00,
      0x4400},
     0x0,
     0x434b0000,
     0x434b0000},
    {TensorType::f16,
     {0x0, 0x31, 0x1075, 0xacc2, 0x3585, 0x5328, 0x2c2e, 0xce1b, 0xbb8d, 0x25cb, 0x7c00, 0x6803, 0x48f, 0x5c55, 0xfc00,
      0xfc00},
     {0x650a, 0xdb9d, 0xeef7, 0x843f, 0xc25b, 0xad27, 0x2e9f, 0x9f52, 0x7c00, 0x6b98, 0x6f6c, 0x314f, 0x315, 0xb94b,
      0x739d, 0x4d7c},
     0xb9533ec2,
     0x7fffffff,
     0x7fffffff},
    {TensorType::f16,
     {0x816d, 0x6, 0x8002, 0x7f, 0x1, 0x2, 0x8061, 0x7, 0x8003, 0x2, 0x1b, 0x16, 0x11, 0x2, 0xc, 0x4},
     {0x451, 0x147, 0x801f, 0x118, 0x1, 0x100, 0x2d, 0x81, 0xe4, 0x800f, 0xb7, 0x8059, 0x8bc0, 0x816e, 0x47, 0x38},
     0x0,
     0xb0d3afa0,
     0xb0d3afa0},
    {TensorType::tf32,
     {0x3f9bb0ab, 0x3eb54dae, 0x3e94f716, 0x3da14540, 0x3f480e14, 0xc00f3c2b, 0x3e6b6188, 0x3e737749},
     {0xbfa79618, 0xbd048c4c, 0xbe613613, 0x3e97635d, 0xbe984ac3, 0xbf7a2e12, 0xbe633119, 0xbfa67404},
     0xbfccd324,
     0xbfd34465,
     0xbfd34465},
    {TensorType::tf32,
     {0x4010a949, 0xbf3f869c, 0xbdc706bc, 0xbe75d6aa, 0x3bcf1748, 0xbe0f581b, 0x408168f9, 0xbfcad435},
     {0x3eaa74c0, 0x415d9d7f, 0x3f2f1803, 0x411c46cc, 0xbf98c026, 0x3d876f0f, 0x40ad4419, 0x3f1c91dc},
     0xc2f9e4d4,
     0xc2e81d35,
     0xc2e81d35},
    {TensorType::tf32,
     {0x38f31b6f, 0xc12680d3, 0xbac699ad, 0xc723b2c4, 0xc027cf82, 0x3fda519e, 0xc6439db6, 0xc98c85bc},
     {0xbaf84ea9, 0x4028e68f, 0xbf72ae7a, 0x3983c0d3, 0xc1a8de2a, 0x3d86f022, 0x42058bcc, 0xbd8b3f3e},
     0x46059b06,
     0xc8a189f2,
     0xc8a189f3},
    {TensorType::tf32,
     {0x40000000, 0xc0800000, 0xc0c00000, 0x41000000, 0xbf800000, 0xbf800000, 0xc0000000, 0xbf800000},
     {0x40800000, 0x40400000, 0x3f800000, 0xc0800000, 0xc0e00000, 0x3f800000, 0xc0a00000, 0xc0800000},
     0x80000000,
     0xc1b00000,
     0xc1b00000},
    {TensorType::tf32,
     {0x384d1b67, 0xc0cfe7bc, 0xbe4184ed, 0xc7892710, 0xb8e13ab9, 0xb217417c, 0xbb2f2bf8, 0x33b19741},
     {0x3acc7cb8, 0xc16eb2aa, 0xbaffcd6c, 0x413c422c, 0x40127e35, 0x3d0e0f37, 0x42e985be, 0xbce3ab9b},
     0x3a658a91,
     0xc949a586,
     0xc949a586},
    {TensorType::tf32,
     {0x9a1e4db7, 0x9a4a9b89, 0x98f175de, 0x9be52bf2, 0x98799014, 0x9d99320e, 0x1b99b5a8, 0x9ab14ee0},
     {0x1ea87eb6, 0x9a247027, 0x1eb8a823, 0x9f32af43, 0x9da8a860, 0x1e361563, 0x9f17d293, 0x9dd079d0},
     0x0,
     0x80005c74,
     0x80005c75},
};

std::vector<TensorNumber> numbers(TensorType type, const std::vector<uint32_t>& bits) {
  std::vector<TensorNumber> out;
  for (const uint32_t each : bits) out.push_back(tensor_number(type, each));
  return out;
}
float sum(TensorType type, const std::vector<uint32_t>& a, const std::vector<uint32_t>& b, float c, int major) {
  return tensor_core_sum(type, numbers(type, a).data(), numbers(type, b).data(), int(a.size()), c, major);
}

TEST(TensorCore, SumsAsPublished) {
  for (const Vector& v : kVectors) {
    const float c = std::bit_cast<float>(v.c);
    EXPECT_EQ(std::bit_cast<uint32_t>(sum(v.type, v.a, v.b, c, 9)), v.hopper) << int(v.type) << " " << v.a[0];
    EXPECT_EQ(std::bit_cast<uint32_t>(sum(v.type, v.a, v.b, c, 8)), v.ampere) << int(v.type) << " " << v.a[0];
  }
}

TEST(TensorCore, WholeNumbersAreExact) {
  std::mt19937 random(1);
  for (int i = 0; i < 1000; ++i) {
    std::vector<uint32_t> a, b;
    int expected = int(random() % 1000) - 500;
    const auto c = float(expected);
    for (int k = 0; k < 16; ++k) {
      const int x = int(random() % 255) - 127, y = int(random() % 255) - 127;
      a.push_back(bf16(float(x)).bits), b.push_back(bf16(float(y)).bits), expected += x * y;
    }
    for (const int major : {8, 9, 12}) EXPECT_EQ(sum(TensorType::bf16, a, b, c, major), float(expected));
  }
}

TEST(TensorCore, TermsAreCutAtTheLargest) {
  const uint32_t one = bf16(1.0f).bits, tiny = bf16(std::ldexp(1.0f, -20)).bits;
  const auto with = [&](uint32_t small, float c, int major) {
    return sum(TensorType::bf16, std::vector<uint32_t>(16, small), std::vector<uint32_t>(16, small), c, major);
  };
  EXPECT_EQ(with(tiny, 1, 9), 1) << "2^-40 is below the last bit of 1 that is kept";
  EXPECT_EQ(with(tiny, 0, 9), std::ldexp(16.0f, -40));
  EXPECT_EQ(with(one, 0.5f, 9), 16.5f);
  // 2^-25 is kept once beside 1 on Hopper, where the result cuts it, and not on Ampere.
  std::vector<uint32_t> a(16), b(16, one);
  for (uint32_t& each : a) each = bf16(std::ldexp(1.0f, -25)).bits;
  EXPECT_EQ(sum(TensorType::bf16, a, b, 1, 9), 1 + std::ldexp(1.0f, -21));
  EXPECT_EQ(sum(TensorType::bf16, a, b, 1, 8), 1);
  EXPECT_EQ(sum(TensorType::bf16, a, b, -1, 9), -1 + std::ldexp(1.0f, -21));
}

TEST(TensorCore, WhatIsNotFinite) {
  const uint32_t one = bf16(1.0f).bits, infinity = bf16(INFINITY).bits, nan = bf16(NAN).bits;
  const auto first = [&](uint32_t x, uint32_t y, float c = 0) {
    return sum(TensorType::bf16, {x, one}, {y, one}, c, 9);
  };
  EXPECT_EQ(first(infinity, one), INFINITY);
  EXPECT_EQ(first(infinity | 0x8000, one), -INFINITY);
  EXPECT_TRUE(std::isnan(first(infinity, 0)));
  EXPECT_TRUE(std::isnan(first(infinity, one, -INFINITY)));
  EXPECT_TRUE(std::isnan(first(nan, one)));
  EXPECT_TRUE(std::isnan(first(one, one, NAN)));
  EXPECT_EQ(sum(TensorType::bf16, {0x7f7f, 0x7f7f}, {0x7f7f, 0x7f7f}, 0, 9), INFINITY);
}

TEST(TensorCore, SubnormalNumbersAndResults) {
  EXPECT_EQ(sum(TensorType::f16, {1}, {f16(1.0f).bits}, 0, 9), std::ldexp(1.0f, -24));
  EXPECT_EQ(sum(TensorType::bf16, {1}, {bf16(1.0f).bits}, 0, 9), std::ldexp(1.0f, -133));
  EXPECT_EQ(sum(TensorType::tf32, {0x2000}, {0x3f800000}, 0, 9), std::ldexp(1.0f, -136));
  const float least = std::bit_cast<float>(1u);
  EXPECT_EQ(sum(TensorType::bf16, {0}, {0}, least, 9), least);
  EXPECT_EQ(sum(TensorType::tf32, {0x3f801fff}, {0x3f800000}, 0, 9), 1) << "the lowest 13 bits are ignored";
}

// Of random bits, of numbers of one size, and with some that are not finite or subnormal.
TEST(TensorCore, ManyColumnsAtOnceAreTheSame) {
  constexpr int kColumns = 72, kDepth = 16;
  std::mt19937 random(1);
  for (const TensorType type : {TensorType::bf16, TensorType::f16})
    for (int round = 0; round < 60; ++round) {
      const auto draw = [&] {
        if (round % 3 == 0) return uint32_t(random() & 0xffff);
        const float x =
            float(int(random() % 2001) - 1000) * std::ldexp(1.0f, round % 3 == 1 ? -10 : int(random() % 24) - 20);
        return uint32_t(type == TensorType::bf16 ? bf16(x).bits : f16(x).bits);
      };
      std::vector<TensorNumber> a, b;
      for (int i = 0; i < kDepth; ++i) a.push_back(tensor_number(type, draw()));
      for (int i = 0; i < kColumns * kDepth; ++i) b.push_back(tensor_number(type, draw()));
      std::vector<float> c(kColumns);
      for (float& each : c) each = std::ldexp(float(int(random() % 2001) - 1000), int(random() % 40) - 30);
      if (round % 5 == 0) c[3] = INFINITY, c[40] = 0, c[41] = std::bit_cast<float>(1u);
      std::vector<float> want;
      for (int i = 0; i < kColumns; ++i)
        want.push_back(tensor_core_sum(type, a.data(), b.data() + i * kDepth, kDepth, c[size_t(i)], 9));
      TensorColumns(b.data(), kColumns, kDepth).add_products(type, a.data(), c.data());
      for (size_t i = 0; i < c.size(); ++i)
        EXPECT_EQ(std::bit_cast<uint32_t>(c[i]), std::bit_cast<uint32_t>(want[i])) << int(type) << " " << round;
    }
}

}  // namespace
}  // namespace ringtape::emulation
