// The loader: the order of samples, and that nothing hangs or is lost.
#include "train/data/loader.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "autograd/ops.h"
#include "tests/support/support.h"

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
    return labels(Loader(set, samples, {.batch_size = batch_size, .shuffle = true, .seed = seed, .workers = workers})
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
    const Loader loader(set, all_samples(set), {.batch_size = 3, .shuffle = true, .seed = 4, .workers = workers});
    const auto whole = labels(loader.epoch(7)), rest = labels(loader.epoch(7, 101));
    EXPECT_EQ(rest, std::vector<int64_t>(whole.begin() + 303, whole.end()));
    EXPECT_EQ(loader.epoch(7, 101).next()->index, 101);
    EXPECT_EQ(loader.epoch(7, loader.batches()).next(), nullptr);
    for (const int64_t outside : {int64_t{-3}, loader.batches() + 1}) EXPECT_THROW(loader.epoch(7, outside), Error);
    EXPECT_THROW(loader.epoch(-1), Error);
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

TEST(Loader, AnErrorReachesTheConsumerAndEndsTheEpoch) {
  Dataset set = numbered(1);
  set.images = Tensor({1, 4096, 4096, 1}, DType::u8);
  const std::vector<int64_t> samples(size_t{1} << 22, 0);  // images of 256 TiB
  for (int workers : {0, 1, 3}) {
    const Loader loader(set, samples, {.batch_size = int64_t(samples.size()), .workers = workers});
    Loader::Epoch epoch = loader.epoch(0);
    EXPECT_THROW(epoch.next(), OutOfMemory);
    for (int i = 0; i < 3; ++i) EXPECT_EQ(epoch.next(), nullptr);
  }
}

TEST(Loader, AugmentationDependsOnSeedEpochAndSampleAlone) {
  Dataset set = numbered(60);
  for (size_t i = 0; i < 240; ++i) set.images.span<uint8_t>()[i] = uint8_t(i);
  const auto images = [&](int workers, bool shuffle, uint64_t seed, int64_t epoch, int64_t batch_size) {
    std::vector<std::vector<float>> out(60);
    const Loader loader(set, all_samples(set),
                        {.batch_size = batch_size,
                         .shuffle = shuffle,
                         .seed = seed,
                         .workers = workers,
                         .augmentation = {.pad = 1, .flip = true}});
    for (const Batch& batch : loader.epoch(epoch))
      for (int64_t i = 0; i < batch.y.dim(0); ++i) {
        const auto x = batch.x.span<float>().subspan(size_t(4 * i), 4);
        out[size_t(batch.y.span<int64_t>()[size_t(i)])].assign(x.begin(), x.end());
      }
    return out;
  };
  const auto reference = images(0, false, 1, 3, 60);
  EXPECT_EQ(images(2, true, 1, 3, 7), reference);
  EXPECT_EQ(images(1, false, 1, 3, 1), reference);
  EXPECT_NE(images(1, false, 1, 4, 60), reference);
  EXPECT_NE(images(1, false, 2, 3, 60), reference);
}

// 60 images of 6x6 with noise.
Dataset noise() {
  Dataset set = numbered(60, 3);
  set.images = Tensor({60, 6, 6, 3}, DType::u8);
  for (size_t i = 0; i < set.images.span<uint8_t>().size(); ++i)
    set.images.span<uint8_t>()[i] = uint8_t(i * 2654435761u >> 13);
  return set;
}

// Views by sample: all first views, then all second views.
std::vector<std::vector<float>> views_of(const Dataset& set, const LoaderConfig& config, int64_t epoch) {
  const auto n = size_t(set.size());
  std::vector<std::vector<float>> out(n * config.views.size());
  for (const Batch& batch : Loader(set, all_samples(set), config).epoch(epoch)) {
    EXPECT_FALSE(batch.x.defined());
    EXPECT_EQ(batch.views.size(), config.views.size());
    for (size_t v = 0; v < batch.views.size(); ++v) {
      EXPECT_EQ(batch.views[v].shape(), set.images.shape().with(0, batch.y.dim(0)));
      for (size_t i = 0; i < batch.y.span<int64_t>().size(); ++i) {
        const auto x = batch.views[v].span<float>().subspan(108 * i, 108);
        out[n * v + size_t(batch.y.span<int64_t>()[i])].assign(x.begin(), x.end());
      }
    }
  }
  return out;
}

TEST(Loader, ViewsDependOnSeedEpochSampleAndTheirNumberAlone) {
  const Dataset set = noise();
  const std::vector<ViewAugmentation> two = {{.blur = 0.5}, {.blur = 0.5}};
  const auto reference = views_of(set, {.batch_size = 60, .seed = 1, .workers = 0, .views = two}, 3);
  EXPECT_EQ(views_of(set, {.batch_size = 7, .shuffle = true, .seed = 1, .workers = 2, .views = two}, 3), reference);
  EXPECT_EQ(views_of(set, {.batch_size = 1, .seed = 1, .workers = 1, .views = two}, 3), reference);
  EXPECT_NE(views_of(set, {.batch_size = 60, .seed = 1, .workers = 1, .views = two}, 4), reference);
  EXPECT_NE(views_of(set, {.batch_size = 60, .seed = 2, .workers = 1, .views = two}, 3), reference);
  int same = 0;
  for (size_t i = 0; i < 60; ++i) same += reference[i] == reference[60 + i];
  EXPECT_LE(same, 1);

  auto shared = reference;  // the samples of three ranks together
  for (auto& view : shared) view.clear();
  for (int rank = 0; rank < 3; ++rank) {
    const auto part =
        views_of(set, {.batch_size = 16, .shuffle = true, .seed = 1, .views = two, .rank = rank, .ranks = 3}, 3);
    for (size_t i = 0; i < part.size(); ++i)
      if (!part[i].empty()) {
        EXPECT_TRUE(shared[i].empty()) << i;
        shared[i] = part[i];
      }
  }
  EXPECT_EQ(shared, reference);
  EXPECT_EQ(Loader(set, all_samples(set), {.batch_size = 16, .drop_last = true, .views = two}).batches(), 3);
}

TEST(Loader, ViewsMayHaveASizeOfTheirOwn) {
  const Dataset set = noise();
  const Loader loader(set, all_samples(set),
                      {.batch_size = 10, .views = {{}, {.crop_low = 0.05, .crop_high = 0.14, .size = 4}}});
  Loader::Epoch epoch = loader.epoch(0);
  const Batch* batch = epoch.next();
  EXPECT_EQ(batch->views[0].shape(), set.images.shape().with(0, 10));
  EXPECT_EQ(batch->views[1].shape(), (Shape{10, 4, 4, 3}));
}

TEST(Loader, ViewsAreNormalisedAsTheSetSays) {
  Splits both{noise(), noise()};
  normalize_as_imagenet(both);
  const Dataset& set = both.train;
  constexpr ViewAugmentation kNothing{.crop_low = 1, .flip = 0, .jitter = 0, .gray = 0};
  const std::vector<float> mean = {0.485f, 0.456f, 0.406f}, deviation = {0.229f, 0.224f, 0.225f};
  const auto views = views_of(set, {.batch_size = 60, .views = {kNothing}}, 0);
  for (size_t i = 0; i < 60; ++i)
    for (size_t k = 0; k < 108; ++k) {
      const float level = float(set.images.span<uint8_t>()[108 * i + k]);
      ASSERT_EQ(views[i][k], (level / 255.0f - mean[k % 3]) / deviation[k % 3]);
    }
  const auto refused = [&](const Dataset& data, LoaderConfig config) {
    EXPECT_THROW(Loader(data, all_samples(data), config), ShapeError);
  };
  refused(numbered(10), {.batch_size = 4, .views = {{}}});  // views need colour images
  EXPECT_THROW(Loader(set, all_samples(set), {.batch_size = 4, .views = {{.hue = 1}}}), UsageError);
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

// A set of one's own.
TEST(Loader, RefusesASetThatIsNone) {
  const auto refusal = [](auto change, LoaderConfig config = {.batch_size = 3}) {
    Dataset set = numbered(10, 3);
    change(set);
    try {
      for (const Batch& batch : Loader(set, {0, 2, 4}, config).epoch(0)) (void)batch;
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string("nothing");
  };
  EXPECT_EQ(refusal([](Dataset&) {}), "nothing");
  EXPECT_MENTIONS(refusal([](Dataset& s) { s.images = transpose(s.images, 1, 2); }), "use contiguous(x)");
  EXPECT_MENTIONS(refusal([](Dataset& s) { s.images = slice(s.images, 0, 0, 5); }), "(N, H, W, C) for 10 labels, got");
  EXPECT_MENTIONS(refusal([](Dataset& s) { s.images = cast(s.images, DType::f32); }), "images of bytes, u8, got f32");
  EXPECT_MENTIONS(refusal([](Dataset& s) { s.labels = cast(s.labels, DType::i32); }), "labels of i64, got i32");
  EXPECT_MENTIONS(refusal([](Dataset& s) { s.labels = Tensor(); }), "expected labels (N), got ()");
  EXPECT_MENTIONS(refusal([](Dataset& s) { s.mean.clear(); }), "a mean and a deviation for each of 3 channels, got 0");
  EXPECT_MENTIONS(refusal([](Dataset& s) { s.deviation[1] = 0; }), "a deviation of 0");
  EXPECT_MENTIONS(refusal([](Dataset& s) { s.classes = 3; }, {.batch_size = 3, .balanced = true}), "a label 4 of 3");
  EXPECT_MENTIONS(refusal([](Dataset&) {}, {.batch_size = 3, .class_weights = {1, 1}}),
                  "a label 2, but 2 class weights");
}

}  // namespace
}  // namespace ringtape
