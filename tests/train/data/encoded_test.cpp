// Images that each batch decodes: the same bytes as images that are kept, and random crops of the whole image.
#include <gtest/gtest.h>
#include <png.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "kernels/random_view.h"
#include "tests/support/support.h"
#include "tests/support/transforms.h"
#include "train/data/files/encoded_images.h"
#include "train/data/files/image_contents.h"
#include "train/data/files/imagefolder.h"
#include "train/data/identity.h"
#include "train/data/loader.h"
#include "train/io/file.h"

namespace ringtape {
namespace {

namespace fs = std::filesystem;

class EncodedTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("ringtape_encoded_" + std::to_string(::getpid()));
    fs::remove_all(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  // Noise of which each image has its own.
  static std::vector<uint8_t> noise(int height, int width, int number) {
    std::vector<uint8_t> out;
    for (int i = 0; i < height * width * 3; ++i)
      out.push_back(uint8_t(philox(uint64_t(number), uint64_t(Stream::test), uint64_t(i)).x[0]));
    return out;
  }
  void picture(const std::string& name, int height, int width, int number) const {
    const fs::path to = folder_ / name;
    fs::create_directories(to.parent_path());
    png_image image{};
    image.version = PNG_IMAGE_VERSION;
    image.width = unsigned(width), image.height = unsigned(height), image.format = PNG_FORMAT_RGB;
    ASSERT_TRUE(png_image_write_to_file(&image, to.c_str(), 0, noise(height, width, number).data(), 0, nullptr));
  }
  // train/ has 23 images of three classes, test/ has 6. Image i is height + i % grows high.
  void pictures(int height, int width, int grows) const {
    for (int i = 0; i < 23; ++i)
      picture(concat("train/", "abc"[i % 3], "/", 10 + i, ".png"), height + i % grows, width, i);
    for (int i = 0; i < 6; ++i) picture(concat("test/", "abc"[i % 3], "/", i, ".png"), height, width, 100 + i);
  }
  Splits load(const std::string& store, int64_t side = 0) const {
    return load_imagefolder({.dir = folder_.string(), .settings = ImageFolderOptions{{.size = side, .store = store}}});
  }

  fs::path folder_;
};

// The bytes of all batches of an epoch, by batch and view, over all ranks.
std::map<std::pair<int64_t, size_t>, std::string> bytes_of(const Dataset& data, LoaderConfig config, int ranks = 1,
                                                           int64_t first = 0) {
  std::map<std::pair<int64_t, size_t>, std::string> out;
  config.batch_size = 5, config.shuffle = true, config.seed = 3, config.ranks = ranks;
  for (config.rank = 0; config.rank < ranks; ++config.rank)
    for (const Batch& batch : Loader(data, all_samples(data), config).epoch(2, first))
      for (size_t v = 0; v < batch.images().size(); ++v) {
        const Tensor x = batch.images()[v];
        out[{batch.index, v}].append(static_cast<const char*>(View(x).data), size_t(x.size()) * 4);
      }
  return out;
}

TEST_F(EncodedTest, BatchesHaveTheBytesOfImagesThatAreKept) {
  pictures(12, 16, 3);
  const Splits kept = load("memory", 10), encoded = load("files", 10);
  ASSERT_TRUE(encoded.train.is_encoded() && encoded.test.is_encoded() && !kept.train.is_encoded());
  EXPECT_EQ(encoded.train.image(), (Shape{10, 10, 3}));
  EXPECT_EQ(encoded.train.mean, kept.train.mean);
  EXPECT_EQ(encoded.train.class_names, kept.train.class_names);
  LoaderConfig config;
  config.augmentation = {.pad = 2, .flip = true, .rotation = 10, .cutout = 3};
  const auto expected = bytes_of(kept.train, config);
  EXPECT_EQ(expected.size(), 5u);
  for (const int workers : {0, 1, 3})
    for (const int ranks : {1, 2, 3}) {
      config.workers = workers;
      EXPECT_EQ(bytes_of(encoded.train, config, ranks), expected) << workers << " workers, " << ranks << " ranks";
    }
  auto rest = expected;
  rest.erase(rest.begin(), rest.find({2, 0}));
  EXPECT_EQ(bytes_of(encoded.train, config, 1, 2), rest);  // from batch 2 on
  config.transforms = {std::make_shared<test::Stamp>(test::StampOptions{4})};
  EXPECT_EQ(bytes_of(encoded.train, config), bytes_of(kept.train, config));
  std::vector<uint8_t> a(300), b(300);
  for (int64_t i = 0; i < 23; ++i) {
    encoded.train.copy_image(i, a.data()), kept.train.copy_image(i, b.data());
    ASSERT_EQ(a, b);
  }
}

TEST_F(EncodedTest, ViewsOfImagesThatNeedNoResizingAreTheSame) {
  pictures(12, 12, 1);
  LoaderConfig config;
  config.views.resize(3);
  config.views[1].blur = 0.5, config.views[2].size = 6;
  const Splits kept = load("memory"), encoded = load("files");
  EXPECT_EQ(bytes_of(encoded.train, config), bytes_of(kept.train, config));
  config.views.resize(1);
  EXPECT_EQ(bytes_of(encoded.train, config, 2), bytes_of(kept.train, config));
}

TEST_F(EncodedTest, ChangedImagesThatNeedNoResizingAreTheSame) {
  pictures(12, 12, 1);
  LoaderConfig config;
  config.augmentation = {.pad = 2, .flip = true, .cutout = 3};
  config.changes.view.crop_low = 0.3, config.changes.view.jitter = 0.5;
  config.changes.policy.kind = PolicyKind::trivial_augment, config.changes.erasing = 0.5;
  config.changes.mixing = {.mixup = 1, .cutmix = 1};
  const Splits kept = load("memory"), encoded = load("files");
  const auto expected = bytes_of(kept.train, config);
  for (const int ranks : {1, 3}) EXPECT_EQ(bytes_of(encoded.train, config, ranks), expected) << ranks;
  config.changes.view.crop_low = 1;
  EXPECT_EQ(bytes_of(encoded.train, config), bytes_of(kept.train, config));
}

TEST_F(EncodedTest, ImagesOnTheDiskAreDecodedOnce) {
  pictures(12, 16, 3);
  const auto on_disk = [&] {
    return load_imagefolder(
        {.dir = folder_.string(),
         .settings = ImageFolderOptions{{.size = 10, .store = "disk", .cache = (folder_ / "cache").string()}}});
  };
  const auto files = [&] {
    std::map<std::string, fs::file_time_type> out;
    for (const auto& entry : fs::directory_iterator(folder_ / "cache"))
      if (entry.path().extension() != ".lock") out[entry.path().string()] = entry.last_write_time();
    return out;
  };
  const auto expected = bytes_of(load("memory", 10).train, {});
  EXPECT_EQ(bytes_of(on_disk().train, {}), expected);
  const auto first = files();
  EXPECT_EQ(first.size(), 2u);  // train and test
  EXPECT_EQ(bytes_of(on_disk().train, {}), expected);
  EXPECT_EQ(files(), first);
  const DataIdentity same = identity_of(on_disk());
  EXPECT_EQ(same, identity_of(load("files", 10)));
  // A changed image of the same size: its time differs.
  const fs::path image = folder_ / "train/a/10.png";
  fs::last_write_time(image, fs::last_write_time(image) + std::chrono::seconds(1));
  EXPECT_EQ(bytes_of(on_disk().train, {}), expected);
  EXPECT_EQ(files().size(), 3u);
  for (const auto& [path, time] : files()) fs::resize_file(path, 5000);  // cut off: made again
  EXPECT_EQ(bytes_of(on_disk().train, {}), expected);
  write_file(image.string(), "no image");
  EXPECT_THROW(on_disk(), FormatError);
  EXPECT_EQ(files().size(), 3u);
}

class DiskTest : public EncodedTest {
 protected:
  Splits on_disk() const {
    return load_imagefolder(
        {.dir = folder_.string(),
         .settings = ImageFolderOptions{{.size = 10, .store = "disk", .cache = (folder_ / "cache").string()}}});
  }
  // The file of the training images, the larger one; "" if there is none.
  std::string cache() const {
    std::string out;
    for (const auto& entry : fs::directory_iterator(folder_ / "cache"))
      if (entry.path().extension() == ".bin" && (out.empty() || entry.file_size() > fs::file_size(out)))
        out = entry.path();
    return out;
  }
};

TEST_F(DiskTest, DamagedImagesAreDecodedAgainAndTheFileIsMadeAnew) {
  pictures(12, 16, 3);
  const auto expected = bytes_of(load("memory", 10).train, {});
  EXPECT_EQ(bytes_of(on_disk().train, {}), expected);
  const std::string path = cache(), whole = read_file(path);
  for (const size_t from_the_end : {size_t(3000), size_t(12)}) {  // images, their checksums
    std::string damaged = whole;
    damaged[whole.size() - from_the_end] ^= 1;
    damaged[whole.size() - from_the_end - 1000] ^= 1;
    std::ofstream(path, std::ios::binary) << damaged;
    EXPECT_EQ(bytes_of(on_disk().train, {}), expected) << from_the_end;
    EXPECT_TRUE(!fs::exists(path) || read_file(path) == whole);
    EXPECT_EQ(bytes_of(on_disk().train, {}), expected);
    EXPECT_EQ(read_file(path), whole);
  }
  const Splits data = on_disk();
  std::string damaged = whole;
  damaged[whole.size() - 3000] ^= 1;
  std::ofstream(path, std::ios::binary) << damaged;
  std::vector<uint8_t> pixels(300);
  for (int64_t i = 0; i < data.train.size(); ++i) data.train.copy_image(i, pixels.data());
  EXPECT_FALSE(fs::exists(path));
}

// The system ends a process that reads behind the end of a mapped file.
TEST_F(DiskTest, AFileThatBecomesShorterIsNamed) {
  pictures(12, 16, 3);
  for (const int workers : {0, 2}) {
    for (const bool transforms : {false, true}) {
      const Splits data = on_disk();
      LoaderConfig config{.batch_size = 5, .workers = workers};
      if (transforms) config.balanced = true;  // batches are gathered
      const Loader loader(data.train, all_samples(data.train), config);
      for ([[maybe_unused]] const Batch& batch : loader.epoch(0)) continue;
      fs::resize_file(cache(), 4096);
      const std::string message = test::message_of<IoError>([&] {
        for ([[maybe_unused]] const Batch& batch : loader.epoch(1)) continue;
      });
      EXPECT_MENTIONS(message, "cannot be read any more: it has become shorter, or its disk fails");
      EXPECT_MENTIONS(message, ".bin");
    }
  }
}

TEST_F(EncodedTest, AnImageThatChangesWhileATrainingReadsItIsNamed) {
  pictures(12, 12, 1);
  const Splits data = load("files", 12);
  const Loader loader(data.train, all_samples(data.train), {.batch_size = 4});
  const auto epoch = [&](int64_t number) {
    for ([[maybe_unused]] const Batch& batch : loader.epoch(number)) continue;
  };
  epoch(0);
  const std::string path = (folder_ / "train/b/17.png").string(), before = read_file(path);
  write_file(path, before);  // touched
  epoch(1);
  picture("train/b/17.png", 12, 12, 99);
  EXPECT_MENTIONS(test::message_of<FormatError>([&] { epoch(2); }),
                  "train/b/17.png: has another content than when this run read it before; bring it back");
  write_file(path, before);
  epoch(3);
}

// As if the kernel made the view of the whole image.
TEST_F(EncodedTest, RandomCropsAreCutFromTheWholeImage) {
  pictures(40, 31, 4);
  const ImageOptions options{.size = 16, .store = "files", .interpolation = "bicubic"};
  const Splits encoded = load_imagefolder({.dir = folder_.string(), .settings = ImageFolderOptions{options}});
  LoaderConfig config{.batch_size = 1, .seed = 3}, labelled = config;
  labelled.changes.view.crop_low = 0.2, labelled.changes.view.gray = 0.5;
  config.views.resize(2);
  config.views[0].blur = 1, config.views[1].solarize = 0.5, config.views[1].size = 8;
  std::vector<float> levels;
  for (size_t c = 0; c < 3; ++c)
    for (int byte = 0; byte < 256; ++byte)
      levels.push_back((float(byte) / 255.0f - encoded.train.mean[c]) / encoded.train.deviation[c]);
  const Tensor table = from_host(levels, {3, 256});
  const Loader loader(encoded.train, all_samples(encoded.train), config);
  Loader::Epoch with_labels = Loader(encoded.train, all_samples(encoded.train), labelled).epoch(5);
  for (const Batch& batch : loader.epoch(5)) {
    const std::string name = encoded.train.encoded->name(batch.index);
    const int number = std::stoi(name.substr(2)) - 10, height = 40 + number % 4;
    const Tensor whole = from_host(noise(height, 31, number), {1, height, 31, 3});
    const Tensor index = from_host(std::vector<int64_t>{batch.index}, {1});
    const auto expect_view = [&](const Tensor& x, const ViewAugmentation& view, int v) {
      Tensor y(x.shape());
      RandomViewParams params(view, 3, 5, v, true);
      params.how = Interpolation::bicubic;
      random_view(y, whole, index, table, params);
      const auto a = y.span<float>(), b = x.span<float>();
      ASSERT_TRUE(std::equal(a.begin(), a.end(), b.begin())) << name << ", view " << v;
    };
    for (int v = 0; v < 2; ++v) expect_view(batch.views[size_t(v)], config.views[size_t(v)], v);
    expect_view(with_labels.next()->x, labelled.changes.view, 0);
  }
}

TEST_F(EncodedTest, ADamagedImageEndsTheEpochWithItsName) {
  pictures(12, 12, 1);
  Splits encoded = load("files", 12);
  auto images = std::make_shared<ImageFiles>((folder_ / "train").string());  // none of them was read yet
  for (int64_t i = 0; i < encoded.train.size(); ++i) images->add(encoded.train.encoded->name(i), 0, 0);
  encoded.train.encoded = std::make_shared<CheckedImages>(images, std::make_shared<ImageContents>(images->size()));
  write_file((folder_ / "train/b/17.png").string(), read_file((folder_ / "train/b/17.png").string()).substr(0, 200));
  for (const int workers : {0, 2}) {
    LoaderConfig config{.batch_size = 4, .workers = workers};
    config.views.resize(1);
    const Loader loader(encoded.train, all_samples(encoded.train), config);
    const std::string message = test::message_of<FormatError>([&] {
      for ([[maybe_unused]] const Batch& batch : loader.epoch(0)) continue;
    });
    EXPECT_MENTIONS(message, "train/b/17.png: damaged PNG data");
  }
  fs::remove(folder_ / "train/b/17.png");
  const Loader loader(encoded.train, all_samples(encoded.train), {.batch_size = 4});
  EXPECT_MENTIONS(test::message_of<IoError>([&] {
                    for ([[maybe_unused]] const Batch& batch : loader.epoch(0)) continue;
                  }),
                  "train/b/17.png");
}

TEST_F(EncodedTest, AutomaticallyWhatFitsIsKept) {
  pictures(240, 256, 1);  // 29 images of 180 KiB, as they are
  const auto load_with = [&](const ImageOptions& o) {
    return load_imagefolder({.dir = folder_.string(), .settings = ImageFolderOptions{o}});
  };
  EXPECT_TRUE(load_with({.size = 200, .memory = 3}).train.is_encoded());
  EXPECT_FALSE(load_with({.size = 200, .memory = 4}).train.is_encoded());
  EXPECT_TRUE(load_with({.size = 200, .store = "files"}).train.is_encoded());
  EXPECT_FALSE(load_with({.size = 200, .store = "memory", .memory = 1}).train.is_encoded());
  EXPECT_MENTIONS(test::message_of<UsageError>([&] { load_with({.memory = 4}); }), "use --image-size N");
}

TEST_F(EncodedTest, ListsOfFilesNameTheirFirstDifference) {
  pictures(12, 12, 1);
  const Splits data = load("files");
  const std::string before = list_of_files(data);
  EXPECT_MENTIONS(before, "train\ta/10.png\t");
  EXPECT_MENTIONS(before, "test\tc/5.png\t");
  EXPECT_EQ(difference_of(before, before), "");
  EXPECT_EQ(list_of_files(load("memory")), before);
  const DataIdentity same = identity_of(load("files"));
  EXPECT_EQ(identity_of(data), same);
  picture("train/b/14.png", 12, 13, 4);
  EXPECT_MENTIONS(difference_of(before, list_of_files(load("files", 12))), "train/b/14.png: has ");
  EXPECT_NE(identity_of(load("files", 12)), same);
  picture("train/b/14.png", 12, 12, 4);
  fs::rename(folder_ / "test/c/5.png", folder_ / "test/c/6.png");
  EXPECT_EQ(difference_of(before, list_of_files(load("files"))), "test/c/5.png: is not there any more");
  EXPECT_NE(identity_of(load("files")), same);
  fs::rename(folder_ / "test/c/6.png", folder_ / "test/c/5.png");
  picture("test/c/1.png", 12, 12, 4);
  EXPECT_EQ(difference_of(before, list_of_files(load("files"))), "test/c/1.png: was not there");
  EXPECT_EQ(difference_of("", before), "train/a/10.png: was not there");
  EXPECT_EQ(difference_of(before, ""), "train/a/10.png: is not there any more");
}

TEST_F(EncodedTest, ValidationImagesOfTheirOwnAndOtherNames) {
  pictures(12, 12, 1);
  picture("val/b/1.png", 12, 12, 200);
  const auto load_with = [&](ImageFolderOptions o) {
    return load_imagefolder({.dir = folder_.string(), .settings = std::move(o)});
  };
  const Splits set = load_with({});
  ASSERT_TRUE(set.val);
  EXPECT_EQ(set.val->size(), 1);
  EXPECT_EQ(set.val->labels.data<int64_t>()[0], 1);
  EXPECT_EQ(set.test.size(), 6);
  EXPECT_EQ(set.validation().size(), 1);
  fs::rename(folder_ / "train", folder_ / "learn");
  fs::rename(folder_ / "test", folder_ / "other");
  const Splits named = load_with({.folders = {.train = "learn", .test = (folder_ / "other").string()}});
  EXPECT_EQ(named.train.size(), 23);
  EXPECT_EQ(named.test.size(), 6);
  EXPECT_EQ(named.val->size(), 1);
  EXPECT_MENTIONS(test::message_of<UsageError>([&] { load_with({.folders = {.train = "absent"}}); }),
                  "--train-dir absent: no folder");
}

TEST_F(EncodedTest, LinksThatLeadUpwardsAreLeftOut) {
  pictures(12, 12, 1);
  fs::create_directory_symlink("..", folder_ / "train/a/up");
  fs::create_directory_symlink("../..", folder_ / "train/b/upup");
  fs::create_directory_symlink("itself", folder_ / "train/b/itself");
  fs::create_directory_symlink("../b", folder_ / "train/a/across");  // which leads to another class, as it says
  const Splits set = load("files", 12);
  EXPECT_EQ(set.train.size(), 23 + 8);
  EXPECT_EQ(set.test.size(), 6);
  EXPECT_MENTIONS(set.notes[0], "5 links to nothing or back to a folder above");
}

TEST_F(EncodedTest, ASplitWithoutImagesIsRefused) {
  pictures(12, 12, 1);
  fs::create_directories(folder_ / "val");
  EXPECT_MENTIONS(test::message_of<MissingData>([&] { load("files", 12); }), "val: no images");
  fs::remove(folder_ / "val");
  fs::remove_all(folder_ / "test");
  fs::create_directories(folder_ / "test/a");
  EXPECT_MENTIONS(test::message_of<MissingData>([&] { load("files", 12); }), "test: no images");
}

TEST_F(EncodedTest, ImagesWithoutLabels) {
  for (int i = 0; i < 5; ++i) picture(concat(i, ".png"), 12, 12, i);
  picture("deeper/down/9.png", 12, 12, 9);
  const auto flat = [&](bool labels) { return load_imagefolder({.dir = folder_.string(), .labels = labels}); };
  const Splits set = flat(false);
  EXPECT_EQ(set.train.size(), 6);
  EXPECT_EQ(set.train.classes, 0);
  EXPECT_EQ(set.test.size(), 0);
  EXPECT_EQ(set.train.encoded->name(5), "deeper/down/9.png");
  EXPECT_THROW(flat(true), Error);
  for (int i = 0; i < 5; ++i) fs::remove(folder_ / concat(i, ".png"));
  for (int i = 0; i < 20; ++i) picture(concat("abc"[i % 2], "/", i, ".png"), 12, 12, i);
  picture("cover.png", 12, 12, 1);  // beside classes
  EXPECT_EQ(flat(false).train.classes, 3);
}

}  // namespace
}  // namespace ringtape
