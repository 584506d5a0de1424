// Operations on the images of a batch on CUDA: the same bytes as on the CPU.
#include "kernels/image_policy.h"
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

}  // namespace
}  // namespace ringtape
