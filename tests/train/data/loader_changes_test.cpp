// Changes of training images by the loader: the kernels in their order, and the same bytes for any number of workers
// and ranks.
#include <gtest/gtest.h>

#include <map>

#include "kernels/augment.h"
#include "kernels/erase.h"
#include "kernels/image_policy.h"
#include "kernels/mix.h"
#include "kernels/random_view.h"
#include "tests/support/support.h"
#include "train/data/loader.h"

namespace ringtape {
namespace {

constexpr int64_t kImages = 46, kEpoch = 3;
constexpr uint64_t kSeed = 5;

Dataset noise_of(const Shape& image) {
  Dataset set;
  set.name = "noise";
  set.images = Tensor({kImages, image[0], image[1], image[2]}, DType::u8);
  set.labels = Tensor({kImages}, DType::i64);
  for (int64_t i = 0; i < set.images.size(); ++i)
    set.images.data<uint8_t>()[i] = uint8_t(uint64_t(i) * 2654435761u >> 13);
  for (int64_t i = 0; i < kImages; ++i) set.labels.data<int64_t>()[i] = i;
  set.classes = int(kImages);
  set.mean.assign(size_t(image[2]), 0.4f);
  set.deviation.assign(size_t(image[2]), 0.3f);
  return set;
}

ImageChanges all_changes() {
  ImageChanges out;
  out.view.crop_low = 0.3, out.view.jitter = 0.8, out.view.gray = 0.2;
  out.policy = {.kind = PolicyKind::rand_augment, .ops = 2, .magnitude = 12};
  out.erasing = 0.4;
  return out;
}

constexpr Augmentation kMoves{.pad = 2, .flip = true, .rotation = 15, .cutout = 3};

LoaderConfig config_of(const ImageChanges& changes, const Augmentation& augmentation = kMoves) {
  return {
      .batch_size = 11, .shuffle = true, .seed = kSeed, .workers = 0, .augmentation = augmentation, .changes = changes};
}

TEST(LoaderChanges, KernelsFollowOneAnother) {
  const Dataset set = noise_of({12, 9, 3});
  const ImageChanges changes = all_changes();
  Tensor bytes({3, 256}, DType::u8), levels({3, 256});
  for (int64_t i = 0; i < 768; ++i) {
    bytes.data<uint8_t>()[i] = uint8_t(i);
    levels.data<float>()[i] = (float(i % 256) / 255.0f - 0.4f) / 0.3f;
  }
  for (const Batch& batch : Loader(set, all_samples(set), config_of(changes)).epoch(kEpoch)) {
    const Shape shape = batch.x.shape();
    Tensor view(shape, DType::u8), moved(shape, DType::u8), y(shape);
    random_view(view, set.images, batch.y, bytes, RandomViewParams(changes.view, kSeed, kEpoch, 0, false));
    Augmentation uncut = kMoves;
    uncut.cutout = 0;
    augment(moved, view, batch.y, bytes, AugmentParams(uncut, kSeed, kEpoch, true));
    image_policy(y, moved, batch.y, levels, PolicyParams(changes.policy, 12, 9, kSeed, kEpoch, true));
    erase(y, batch.y, EraseParams({.probability = 0.4, .cutout = 3}, kSeed, kEpoch));
    EXPECT_TRUE(test::same_bytes(batch.x, y)) << "batch " << batch.index;
    EXPECT_FALSE(batch.other.defined());
  }
}

// A crop is that of the whole area only if it is asked for: colours alone leave positions as they are.
TEST(LoaderChanges, ColoursAloneMoveNothing) {
  const Dataset set = noise_of({12, 30, 3});
  ImageChanges gray;
  gray.view.gray = 1;
  const Batch batch = *Loader(set, all_samples(set), config_of(gray, {})).epoch(kEpoch).next();
  for (int64_t i = 0; i < batch.x.size() / 3; ++i) {
    const uint8_t* from = set.images.data<uint8_t>() + batch.y.data<int64_t>()[i / 360] * 1080 + i % 360 * 3;
    const int32_t luma = (19595 * from[0] + 38470 * from[1] + 7471 * from[2] + 32768) >> 16;
    ASSERT_EQ(batch.x.data<float>()[3 * i + 1], (float(luma) / 255.0f - 0.4f) / 0.3f) << i;
  }
}

struct Row {
  std::vector<float> x;
  int64_t other;
  double share;
  bool operator==(const Row&) const = default;
};

// The rows of all ranks, by sample.
std::map<int64_t, Row> rows_of(const Dataset& set, LoaderConfig config, int64_t first_batch = 0) {
  std::map<int64_t, Row> out;
  for (config.rank = 0; config.rank < config.ranks; ++config.rank)
    for (const Batch& batch : Loader(set, all_samples(set), config).epoch(kEpoch, first_batch)) {
      EXPECT_EQ(batch.x.dim(0), batch.y.size());
      EXPECT_EQ(batch.other.size(), batch.y.size());
      const int64_t elements = batch.x.size() / std::max<int64_t>(batch.y.size(), 1);
      for (int64_t i = 0; i < batch.y.size(); ++i) {
        const auto x = batch.x.span<float>().subspan(size_t(i * elements), size_t(elements));
        const auto [at, fresh] = out.try_emplace(
            batch.y.data<int64_t>()[i], Row{{x.begin(), x.end()}, batch.other.data<int64_t>()[i], batch.share});
        EXPECT_TRUE(fresh) << at->first;
      }
    }
  return out;
}

TEST(LoaderChanges, MixedRowsAreThoseOfAnyWorkersAndRanks) {
  const Dataset set = noise_of({8, 7, 3});
  ImageChanges changes = all_changes();
  changes.mixing = {.mixup = 0.5, .cutmix = 1};
  LoaderConfig config = config_of(changes);
  const auto reference = rows_of(set, config);
  EXPECT_EQ(reference.size(), size_t(kImages));
  for (const auto& [ranks, workers, shares] : {std::array{1, 3, 0}, {2, 0, 0}, {3, 2, 0}, {11, 1, 0}, {2, 1, 4}}) {
    config.ranks = ranks, config.workers = workers, config.shares = shares;
    EXPECT_TRUE(rows_of(set, config) == reference) << ranks << " ranks, " << workers << " workers";
  }
  config.ranks = 2, config.shares = 0;
  for (const auto& [sample, row] : rows_of(set, config, 3)) EXPECT_TRUE(row == reference.at(sample)) << sample;
}

TEST(LoaderChanges, AnImageIsMixedWithTheOneBeforeIt) {
  const Dataset set = noise_of({8, 7, 1});
  ImageChanges changes;
  for (const Mixing& mixing : {Mixing{.mixup = 0.4}, Mixing{.cutmix = 1}, Mixing{.mixup = 1, .cutmix = 1}}) {
    changes.mixing = {};
    const Loader plain(set, all_samples(set), config_of(changes));
    changes.mixing = mixing;
    const Loader mixing_loader(set, all_samples(set), config_of(changes));
    Loader::Epoch alone = plain.epoch(kEpoch);
    for (const Batch& batch : mixing_loader.epoch(kEpoch)) {
      const Batch* const own = alone.next();
      const int64_t n = own->y.size(), elements = own->x.size() / n;
      const Mixture m = draw_mixture(mixing, 8, 7, kSeed, kEpoch, batch.index);
      EXPECT_TRUE(test::same_bytes(batch.y, own->y));
      EXPECT_EQ(batch.share, m.label_share);
      Tensor all({n + 1, 8, 7, 1}), want({n, 8, 7, 1});
      std::copy_n(own->x.data<float>() + (n - 1) * elements, elements, all.data<float>());
      std::copy_n(own->x.data<float>(), n * elements, all.data<float>() + elements);
      mix(want, all, m);
      EXPECT_TRUE(test::same_bytes(batch.x, want)) << "batch " << batch.index;
      for (int64_t i = 0; i < n; ++i)
        EXPECT_EQ(batch.other.data<int64_t>()[i], own->y.data<int64_t>()[(i + n - 1) % n]);
    }
  }
}

TEST(LoaderChanges, RefusesWhatCannotBe) {
  const auto made = [](const Shape& image, const ImageChanges& changes) {
    const Dataset set = noise_of(image);
    Loader(set, all_samples(set), config_of(changes));
  };
  ImageChanges policy, jitter, erasing, mixing;
  policy.policy.kind = PolicyKind::trivial_augment, jitter.view.jitter = 1, erasing.erasing = 2;
  mixing.mixing.cutmix = -1;
  made({8, 8, 1}, policy);
  EXPECT_MENTIONS(test::message_of<ShapeError>([&] { made({8, 8, 2}, policy); }), "1 or 3 channels");
  EXPECT_MENTIONS(test::message_of<ShapeError>([&] { made({8, 8, 1}, jitter); }), "3 channels");
  EXPECT_MENTIONS(test::message_of<UsageError>([&] { made({8, 8, 1}, erasing); }), "erasing 2");
  EXPECT_MENTIONS(test::message_of<UsageError>([&] { made({8, 8, 1}, mixing); }), "alpha of -1");
}

}  // namespace
}  // namespace ringtape
