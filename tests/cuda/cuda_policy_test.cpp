// Operations on the images of a batch on CUDA: the same bytes as on the CPU.
#include "kernels/erase.h"
#include "kernels/image_policy.h"
#include "kernels/mix.h"
#include "tests/support/cuda_support.h"
#include "tests/support/support.h"

namespace ringtape {
namespace {

using test::kCuda;
using test::same_bytes;

TEST(CudaImagePolicy, EqualsTheCpuBitForBit) {
  RT_NEEDS_CUDA();
  const ImagePolicy wide{.kind = PolicyKind::trivial_augment}, four{.kind = PolicyKind::rand_augment, .ops = 4};
  struct Case {
    Shape images;
    const ImagePolicy& policy;
  };
  for (const Case& c : {Case{{150, 13, 17, 3}, wide}, Case{{40, 32, 32, 3}, four}, Case{{60, 9, 14, 1}, wide},
                        Case{{30, 2, 5, 3}, four}})
    for (DType dtype : {DType::f32, DType::bf16, DType::f64, DType::u8})
      for (bool gathered : {false, true}) {
        if (dtype != DType::u8 && gathered) continue;
        Tensor images(c.images, DType::u8), index({c.images[0]}, DType::i64), table({c.images[3], 256}, dtype);
        for (int64_t i = 0; i < images.size(); ++i)  // a part of the levels, so that their histogram is not even
          images.data<uint8_t>()[i] = uint8_t(40 + (uint64_t(i) * 2654435761u >> 13) % 256 * (i % 7 + 1) / 12);
        for (int64_t i = 0; i < c.images[0]; ++i) index.data<int64_t>()[i] = c.images[0] - 1 - i;
        dispatch(dtype, [&]<class T>() {
          for (int64_t i = 0; i < table.size(); ++i) table.data<T>()[i] = T(compute_t<T>(i % 256));
        });
        const PolicyParams params(c.policy, c.images[1], c.images[2], 3, 8, gathered);
        Tensor host(c.images, dtype), device(c.images, dtype, kCuda);
        image_policy(host, images, index, table, params);
        image_policy(device, images.copy_to(kCuda), index.copy_to(kCuda), table.copy_to(kCuda), params);
        ASSERT_TRUE(same_bytes(device.copy_to({}), host)) << concat(c.images, ' ', dtype, " gathered ", gathered);
      }
}

Tensor floats(const Shape& shape) {
  Tensor out(shape);
  for (int64_t i = 0; i < out.size(); ++i) out.data<float>()[i] = float(i % 1013) * 0.37f - 100;
  return out;
}

TEST(CudaErase, EqualsTheCpuBitForBit) {
  RT_NEEDS_CUDA();
  for (const Shape& shape : {Shape{40, 11, 14, 3}, Shape{9, 1, 9, 1}}) {
    const EraseParams params({.probability = 0.7, .cutout = 4}, 3, 8);
    Tensor host = floats(shape), index({shape[0]}, DType::i64);
    for (int64_t i = 0; i < shape[0]; ++i) index.data<int64_t>()[i] = 3 * i;
    const Tensor device = host.copy_to(kCuda);
    erase(host, index, params);
    erase(device, index.copy_to(kCuda), params);
    EXPECT_TRUE(same_bytes(device.copy_to({}), host)) << concat(shape);
  }
}

TEST(CudaMix, EqualsTheCpuBitForBit) {
  RT_NEEDS_CUDA();
  const Tensor x = floats({6, 9, 40, 3});
  for (const Mixture& m : {Mixture{.share = 0.3000030517578125}, Mixture{.part = {2, 10, 3, 20}}, Mixture{}}) {
    Tensor host({5, 9, 40, 3}), device(host.shape(), DType::f32, kCuda);
    mix(host, x, m);
    mix(device, x.copy_to(kCuda), m);
    EXPECT_TRUE(same_bytes(device.copy_to({}), host)) << m.share;
  }
}

}  // namespace
}  // namespace ringtape
