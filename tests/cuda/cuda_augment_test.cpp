// Augmentation, random views and the loader on CUDA: the same bytes as on the CPU.
#include "core/runtime.h"
#include "kernels/random_view.h"
#include "tests/support/cuda_support.h"
#include "tests/support/support.h"
#include "tests/support/transforms.h"

namespace ringtape {
namespace {

using test::kCuda;
using test::same_bytes;

Tensor bytes(const Shape& shape) {
  Tensor out(shape, DType::u8);
  for (int64_t i = 0; i < out.size(); ++i) out.data<uint8_t>()[i] = uint8_t(uint64_t(i) * 2654435761u >> 13);
  return out;
}

// A value for each byte of each channel.
void fill_table(Tensor& table) {
  dispatch(table.dtype(), [&]<class T>() {
    for (int64_t i = 0; i < table.size(); ++i) table.data<T>()[i] = T(compute_t<T>(float(i % 512) * 0.47f));
  });
}

const Augmentation kEach[] = {{},
                              {.pad = 4, .flip = true},
                              {.pad = 1},
                              {.flip = true},
                              {.rotation = 25},
                              {.cutout = 5},
                              {.pad = 3, .flip = true, .rotation = 180, .cutout = 4},
                              {.pad = 3, .reflect = true, .alternate_flip = true},
                              {.pad = 2, .reflect = true, .rotation = 30}};

TEST(CudaAugment, EqualsTheCpuBitForBit) {
  RT_NEEDS_CUDA();
  for (const Shape& shape : {Shape{9, 8, 8, 3}, Shape{7, 5, 9, 1}, Shape{6, 7, 6, 4}, Shape{5, 9, 5, 2}})
    for (const Augmentation& what : kEach)
      for (DType dtype : {DType::f32, DType::bf16, DType::f16, DType::f64, DType::u8})
        for (bool gathered : {false, true}) {
          const Tensor images = bytes(shape);
          Tensor index({5}, DType::i64), table({shape[3], 256}, dtype);
          for (int64_t i = 0; i < 5; ++i) index.data<int64_t>()[i] = shape[0] - 1 - i;
          fill_table(table);
          const AugmentParams params(what, 3, 8, gathered);
          for (int64_t smaller : {0, 1}) {
            const Shape out{5, shape[1] - smaller, shape[2] - smaller, shape[3]};
            Tensor host(out, dtype), device(out, dtype, kCuda);
            augment(host, images, index, table, params);
            augment(device, images.copy_to(kCuda), index.copy_to(kCuda), table.copy_to(kCuda), params);
            ASSERT_TRUE(same_bytes(device.copy_to({}), host))
                << concat(shape, ' ', dtype, " pad ", what.pad, " reflected ", what.reflect, " flip ", what.flip,
                          " rotation ", what.rotation, " cutout ", what.cutout, " gathered ", gathered);
          }
        }
}

TEST(CudaTransforms, EqualTheCpuBitForBit) {
  RT_NEEDS_CUDA();
  for (const bool views : {false, true})
    for (const int workers : {0, 2})
      EXPECT_TRUE(test::stamped_batches(kCuda, views, 2, workers) == test::stamped_batches({}, views, 1, 0));
}

TEST(CudaRandomView, EqualsTheCpuBitForBit) {
  RT_NEEDS_CUDA();
  const ViewAugmentation all{.jitter = 0.8, .gray = 0.3, .blur = 0.5, .solarize = 0.3};
  const ViewAugmentation colourless{.jitter = 0, .gray = 0, .blur = 1, .blur_high = 20};
  struct Case {
    Shape images;
    int64_t height, width;
    const ViewAugmentation& what;
  };
  for (const Case& c :  // the first needs more than the shared memory of a block
       {Case{{2, 170, 224, 3}, 200, 140, all}, Case{{24, 32, 32, 3}, 32, 32, all}, Case{{9, 21, 34, 3}, 16, 9, all},
        Case{{70, 7, 5, 3}, 8, 12, all}, Case{{3, 96, 96, 3}, 96, 96, all}, Case{{6, 9, 8, 4}, 4, 8, colourless},
        Case{{6, 9, 8, 1}, 9, 3, colourless}})
    for (DType dtype : {DType::f32, DType::bf16, DType::f64, DType::u8})
      for (bool gathered : {false, true}) {
        if (c.height >= 96 && gathered) continue;
        const Tensor images = bytes(c.images);
        const int64_t n = c.images[0], channels = c.images[3];
        Tensor index({n}, DType::i64), table({channels, 256}, dtype);
        for (int64_t i = 0; i < n; ++i) index.data<int64_t>()[i] = n - 1 - i;
        fill_table(table);
        RandomViewParams params(c.what, 3, 8, 1, gathered);
        params.how = dtype == DType::u8 ? Interpolation::bicubic : Interpolation::bilinear;
        Tensor host({n, c.height, c.width, channels}, dtype), device(host.shape(), dtype, kCuda);
        random_view(host, images, index, table, params);
        random_view(device, images.copy_to(kCuda), index.copy_to(kCuda), table.copy_to(kCuda), params);
        ASSERT_TRUE(same_bytes(device.copy_to({}), host))
            << concat(c.images, " to ", host.shape(), ' ', dtype, " gathered ", gathered);
      }
}

Dataset noise_set(int64_t n) {
  Dataset set;
  set.name = "noise";
  set.images = bytes({n, 6, 8, 3});
  set.labels = Tensor({n}, DType::i64);
  for (int64_t i = 0; i < n; ++i) set.labels.data<int64_t>()[i] = i % 7;
  set.classes = 7;
  set.mean = {0.4f, 0.5f, 0.6f};
  set.deviation = {0.2f, 0.3f, 0.25f};
  return set;
}

// All batches of an epoch, on the host: images or views, and labels. Read when all have been asked for.
std::vector<Tensors> batches(const Dataset& set, Device device, int workers, int64_t epoch,
                             const std::vector<ViewAugmentation>& views = {}, const ImageChanges& changes = {},
                             bool balanced = false) {
  const Loader loader(set, all_samples(set),
                      {.batch_size = 16,
                       .shuffle = true,
                       .balanced = balanced,
                       .seed = 5,
                       .workers = workers,
                       .device = device,
                       .augmentation = kEach[6],
                       .changes = changes,
                       .views = views});
  std::vector<Tensors> out;
  for (const Batch& batch : loader.epoch(epoch)) {
    out.push_back(batch.views);
    if (views.empty()) out.back().push_back(batch.x);
    out.back().push_back(batch.y);
    if (batch.other.defined()) out.back().push_back(batch.other);
  }
  for (Tensors& batch : out)
    for (Tensor& x : batch) {
      EXPECT_EQ(x.device(), device);
      x = x.copy_to({});
    }
  return out;
}

TEST(CudaLoader, BatchesAreThoseOfTheCpu) {
  RT_NEEDS_CUDA();
  Splits kept{noise_set(500), noise_set(20)};
  keep_on_device(kept, kCuda);
  EXPECT_EQ(kept.train.images.device(), kCuda);
  EXPECT_EQ(kept.test.labels.device(), kCuda);
  const Dataset set = noise_set(500);
  for (const std::vector<ViewAugmentation>& views :
       {std::vector<ViewAugmentation>{}, {{}, {.blur = 1, .solarize = 0.5}}})
    for (int64_t epoch : {0, 3}) {
      if (epoch == 0 && !views.empty()) continue;  // one is enough, and takes long under the checker
      const auto cpu = batches(set, {}, 1, epoch, views);
      ASSERT_EQ(cpu.size(), 32u);
      for (int workers : {0, 1, 3})
        for (const Dataset* from : std::initializer_list<const Dataset*>{&set, &kept.train}) {
          const auto cuda = batches(*from, kCuda, workers, epoch, views);
          ASSERT_EQ(cuda.size(), cpu.size());
          for (size_t i = 0; i < cpu.size(); ++i) {
            ASSERT_EQ(cuda[i].size(), std::max<size_t>(views.size(), 1) + 1);
            for (size_t k = 0; k < cpu[i].size(); ++k)
              ASSERT_TRUE(same_bytes(cuda[i][k], cpu[i][k]))
                  << "tensor " << k << " of batch " << i << ", " << workers << " workers";
          }
        }
    }
}

TEST(CudaLoader, DrawnBatchesAreThoseOfTheCpu) {
  RT_NEEDS_CUDA();
  const Dataset set = noise_set(100);
  ImageChanges changes;
  changes.view.crop_low = 0.4, changes.erasing = 0.5;
  const auto cpu = batches(set, {}, 1, 2, {}, changes, true), cuda = batches(set, kCuda, 2, 2, {}, changes, true);
  ASSERT_EQ(cuda.size(), cpu.size());
  for (size_t i = 0; i < cpu.size(); ++i)
    for (size_t k = 0; k < cpu[i].size(); ++k) ASSERT_TRUE(same_bytes(cuda[i][k], cpu[i][k])) << k << " of " << i;
  Splits kept{noise_set(100), noise_set(20)};
  keep_on_device(kept, kCuda);
  EXPECT_THROW(batches(kept.train, kCuda, 2, 2, {}, changes, true), DeviceError);
}

TEST(CudaLoader, ChangedAndMixedBatchesAreThoseOfTheCpu) {
  RT_NEEDS_CUDA();
  Splits kept{noise_set(100), noise_set(20)};
  keep_on_device(kept, kCuda);
  const Dataset set = noise_set(100);
  ImageChanges changes;
  changes.view.crop_low = 0.4, changes.view.jitter = 0.5;
  changes.policy.kind = PolicyKind::rand_augment, changes.erasing = 0.5, changes.mixing = {.mixup = 1, .cutmix = 1};
  const auto cpu = batches(set, {}, 1, 2, {}, changes);
  for (const Dataset* from : std::initializer_list<const Dataset*>{&set, &kept.train}) {
    const auto cuda = batches(*from, kCuda, 2, 2, {}, changes);
    ASSERT_EQ(cuda.size(), cpu.size());
    for (size_t i = 0; i < cpu.size(); ++i) {
      ASSERT_EQ(cuda[i].size(), 3u);
      for (size_t k = 0; k < 3; ++k)
        ASSERT_TRUE(same_bytes(cuda[i][k], cpu[i][k])) << "tensor " << k << " of batch " << i;
    }
  }
}

TEST(CudaLoader, MayBeLeftEarly) {
  RT_NEEDS_CUDA();
  const Dataset set = noise_set(500);
  for (int workers : {0, 1, 3}) {
    const Loader loader(set, all_samples(set), {.batch_size = 4, .workers = workers, .device = kCuda});
    for (int taken = 0; taken < 10; ++taken) {
      Loader::Epoch epoch = loader.epoch(taken);
      for (int i = 0; i < taken; ++i) ASSERT_NE(epoch.next(), nullptr);
    }
  }
  synchronize(kCuda);
}

#if defined(RINGTAPE_EMULATION_BUILD)
TEST(CudaLoader, NoBatchIsWaitedFor) {
  RT_NEEDS_CUDA();
  Splits kept{noise_set(500), noise_set(20)};
  keep_on_device(kept, kCuda);
  const Dataset set = noise_set(500);
  for (const Dataset* from : std::initializer_list<const Dataset*>{&set, &kept.train}) {
    const Loader loader(*from, all_samples(*from),
                        {.batch_size = 400, .workers = 0, .device = kCuda, .augmentation = kEach[1]});
    batches(*from, kCuda, 0, 0);  // what is made on first use
    synchronize(kCuda);
    const size_t before = emulation::queued();
    Loader::Epoch epoch = loader.epoch(1);
    size_t last = before;
    for (int i = 0; i < 2; ++i) {
      ASSERT_NE(epoch.next(), nullptr);
      EXPECT_GT(emulation::queued(), last);
      last = emulation::queued();
    }
  }
}

TEST(CudaLoader, ALargeSetStaysOnTheHost) {
  RT_NEEDS_CUDA();
  runtime(kCuda).release_cached(0);
  const emulation::Gpu before = emulation::gpu();
  emulation::Gpu small = before;
  small.memory_bytes = size_t{1} << 18;
  emulation::set_gpu(small);
  Splits large{noise_set(500), noise_set(20)};  // 73 KiB; a quarter of the memory is 64 KiB
  keep_on_device(large, kCuda);
  emulation::set_gpu(before);
  EXPECT_EQ(large.train.images.device().str(), "cpu:0");
  EXPECT_EQ(large.train.labels.device().str(), "cpu:0");
}
#endif

TEST(CudaLoader, ASetOnAnotherDeviceIsRefused) {
  RT_NEEDS_CUDA();
  Splits kept{noise_set(50), noise_set(20)};
  keep_on_device(kept, kCuda);
  EXPECT_THROW(Loader(kept.train, all_samples(kept.train), {.batch_size = 5}), DeviceError);
}

}  // namespace
}  // namespace ringtape
