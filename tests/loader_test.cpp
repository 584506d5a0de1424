// The loader: what comes in which order, and that nothing hangs or is lost.
#include "train/data/loader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <thread>

namespace ringtape {
namespace {

// n images of 2x2 with C channels; every byte of image i is i % 256, its label i.
Dataset numbered(int64_t n, int64_t channels = 1) {
  Dataset set;
  set.name = "numbered";
  set.images = Tensor({n, 2, 2, channels}, DType::u8);
  set.labels = Tensor({n}, DType::i64);
  for (int64_t i = 0; i < n; ++i) {
    set.labels.data<int64_t>()[i] = i;
    for (int64_t j = 0; j < 4 * channels; ++j) set.images.data<uint8_t>()[i * 4 * channels + j] = uint8_t(i);
  }
  set.classes = int(n);
  set.mean.assign(size_t(channels), 0.5f);
  set.deviation.assign(size_t(channels), 0.25f);
  return set;
}

std::vector<int64_t> labels(Loader::Epoch epoch) {
  std::vector<int64_t> out;
  for (const Batch& batch : epoch)
    for (int64_t y : batch.y.span<int64_t>()) out.push_back(y);
  return out;
}

TEST(Loader, SequentialOrderWithALastPartialBatch) {
  for (int workers : {0, 1, 3}) {
    const Dataset set = numbered(10);
    const Loader loader(set, all_samples(set), {.batch_size = 4, .workers = workers});
    EXPECT_EQ(loader.batches(), 3);
    std::vector<int64_t> sizes;
    int64_t index = 0;
    for (const Batch& batch : loader.epoch(0)) {
      EXPECT_EQ(batch.index, index++);
      EXPECT_EQ(batch.x.shape(), (Shape{batch.y.dim(0), 2, 2, 1}));
      EXPECT_TRUE(batch.x.contiguous());
      sizes.push_back(batch.y.dim(0));
    }
    EXPECT_EQ(sizes, (std::vector<int64_t>{4, 4, 2}));
    EXPECT_EQ(labels(loader.epoch(0)), all_samples(set));
    const Loader full(set, all_samples(set), {.batch_size = 4, .drop_last = true, .workers = workers});
    EXPECT_EQ(full.batches(), 2);
    EXPECT_EQ(labels(full.epoch(0)).size(), 8u);
  }
}

TEST(Loader, OrderDependsOnSeedAndEpochAlone) {
  const Dataset set = numbered(5000);
  std::vector<int64_t> samples;
  for (int64_t i = 0; i < 5000; i += 2) samples.push_back(i);
  const auto order = [&](int workers, uint64_t seed, int64_t epoch, int64_t batch_size = 16) {
    return labels(
        Loader(set, samples, {.batch_size = batch_size, .shuffle = true, .seed = seed, .workers = workers})
            .epoch(epoch));
  };
  const auto reference = order(0, 1, 0);
  for (int workers : {1, 3}) EXPECT_EQ(order(workers, 1, 0), reference);
  EXPECT_EQ(order(2, 1, 0, 7), reference);
  EXPECT_NE(order(1, 1, 1), reference);
  EXPECT_NE(order(1, 2, 0), reference);
  auto sorted = reference;
  std::sort(sorted.begin(), sorted.end());
  EXPECT_EQ(sorted, samples);
}

TEST(Loader, ResumesWithinAnEpoch) {
  const Dataset set = numbered(1000);
  for (int workers : {0, 2}) {
    const Loader loader(set, all_samples(set),
                        {.batch_size = 3, .shuffle = true, .seed = 4, .workers = workers});
    const auto whole = labels(loader.epoch(7)), rest = labels(loader.epoch(7, 101));
    EXPECT_EQ(rest, std::vector<int64_t>(whole.begin() + 303, whole.end()));
    EXPECT_EQ(loader.epoch(7, 101).next()->index, 101);
    EXPECT_EQ(loader.epoch(7, loader.batches()).next(), nullptr);
  }
}

TEST(Loader, NormalisesAsTorchvisionDoes) {
  for (int64_t channels : {1, 3, 4}) {
    Dataset set = numbered(256, channels);
    for (size_t c = 0; c < size_t(channels); ++c)
      set.mean[c] = 0.1f * float(c + 1), set.deviation[c] = 0.2f + 0.1f * float(c);
    const Loader loader(set, all_samples(set), {.batch_size = 256});
    Loader::Epoch epoch = loader.epoch(0);
    const auto x = epoch.next()->x.span<float>();
    for (size_t i = 0; i < x.size(); ++i) {
      const size_t c = i % size_t(channels), byte = i / (4 * size_t(channels));
      ASSERT_EQ(x[i], (float(byte) / 255.0f - set.mean[c]) / set.deviation[c]);
    }
  }
}

TEST(Loader, BatchesStayValidWhileHeld) {
  const Dataset set = numbered(2000);
  const Loader loader(set, all_samples(set), {.batch_size = 2, .workers = 2});
  std::vector<Tensor> held;
  for (const Batch& batch : loader.epoch(0)) held.push_back(batch.y);
  for (size_t i = 0; i < held.size(); ++i) ASSERT_EQ(held[i].span<int64_t>()[0], int64_t(2 * i));
}

TEST(Loader, MayBeLeftEarly) {
  const Dataset set = numbered(5000);
  for (int workers : {0, 1, 3}) {
    const Loader loader(set, all_samples(set), {.batch_size = 4, .shuffle = true, .workers = workers});
    for (int taken = 0; taken < 20; ++taken) {
      Loader::Epoch epoch = loader.epoch(taken);
      for (int i = 0; i < taken; ++i) ASSERT_NE(epoch.next(), nullptr);
    }
  }
}

TEST(Loader, LeavingEarlyDoesNotWaitForTheQueue) {
  const Dataset set = numbered(64);
  const auto slow = [](float*, int64_t, int64_t) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  };
  const auto begin = std::chrono::steady_clock::now();
  { Loader(set, all_samples(set), {.batch_size = 64, .workers = 1, .augment = slow}).epoch(0); }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(150));
}

TEST(Loader, ExceptionsReachTheConsumerAtTheirBatch) {
  const Dataset set = numbered(100);
  const auto fails = [](float*, int64_t, int64_t sample) {
    RT_CHECK_AS(FormatError, sample != 42, "sample ", sample);
  };
  for (int workers : {0, 1, 3}) {
    const Loader loader(set, all_samples(set), {.batch_size = 10, .workers = workers, .augment = fails});
    Loader::Epoch epoch = loader.epoch(0);
    for (int i = 0; i < 4; ++i) ASSERT_NE(epoch.next(), nullptr);
    EXPECT_THROW(epoch.next(), FormatError);
    EXPECT_EQ(epoch.next(), nullptr);
  }
}

TEST(Loader, AnErrorEndsTheEpochEvenWithChunksLeft) {
  const Dataset set = numbered(5000);
  for (int64_t bad : {0, 3, 400, 4999}) {
    const auto fails = [&](float*, int64_t, int64_t sample) {
      RT_CHECK_AS(FormatError, sample != bad, sample);
    };
    for (int workers : {0, 1, 3}) {
      const Loader loader(set, all_samples(set), {.batch_size = 2, .workers = workers, .augment = fails});
      Loader::Epoch epoch = loader.epoch(0);
      for (int64_t i = 0; i < bad / 2; ++i) ASSERT_EQ(epoch.next()->index, i);
      EXPECT_THROW(epoch.next(), FormatError);
      for (int i = 0; i < 3; ++i) EXPECT_EQ(epoch.next(), nullptr);
    }
  }
}

TEST(Loader, AugmentSeesEpochAndSample) {
  const Dataset set = numbered(50);
  const auto mark = [](float* image, int64_t epoch, int64_t sample) {
    image[0] = float(1000 * epoch + sample);
  };
  const Loader loader(set, all_samples(set),
                      {.batch_size = 5, .shuffle = true, .workers = 2, .augment = mark});
  for (const Batch& batch : loader.epoch(3))
    for (int64_t i = 0; i < 5; ++i)
      ASSERT_EQ(batch.x.span<float>()[size_t(i) * 4], float(3000 + batch.y.span<int64_t>()[size_t(i)]));
}

TEST(Loader, RefusesWhatCannotBeServed) {
  const Dataset set = numbered(10);
  const auto make = [&](std::vector<int64_t> samples, int64_t size) {
    Loader(set, std::move(samples), {.batch_size = size});
  };
  EXPECT_THROW(make(all_samples(set), 0), UsageError);
  EXPECT_THROW(make(all_samples(set), 11), UsageError);
  EXPECT_THROW(make({}, 1), UsageError);
  EXPECT_THROW(make({10}, 1), ShapeError);
  EXPECT_THROW(make({-1}, 1), ShapeError);
}

}  // namespace
}  // namespace ringtape
