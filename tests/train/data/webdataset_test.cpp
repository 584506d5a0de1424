// Images in tar archives: the same training as from a folder, read in order through a buffer.
#include "train/data/files/webdataset.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "tests/support/image_folders.h"
#include "train/data/loader.h"
#include "train/data/order.h"

namespace ringtape {
namespace {

namespace fs = std::filesystem;

class WebDatasetTest : public test::ImageFolders {
 protected:
  // Packs the images of a folder with classes cat and dog: `each` of them to an archive, which has their labels.
  void pack(const std::string& folder, const std::string& prefix, int each, const char* label = ".cls") const {
    std::vector<std::string> members;
    int archive = 0;
    const auto write = [&] {
      std::string list;
      for (const std::string& member : members) list += member + "\n";
      write_file((folder_ / "list").string(), list);
      const std::string name = concat(prefix, "-00", archive++, ".tar");
      fs::create_directories((folder_ / name).parent_path());
      ASSERT_EQ(std::system(concat("cd ", (folder_ / "flat").string(), " && tar -cf ", (folder_ / name).string(),
                                   " --no-recursion -T ", (folder_ / "list").string())
                                .c_str()),
                0);
      members.clear();
    };
    fs::remove_all(folder_ / "flat");
    fs::create_directories(folder_ / "flat");
    for (const char* kind : {"cat", "dog"})
      for (const auto& entry : fs::directory_iterator(folder_ / folder / kind)) {
        const std::string key = concat(kind, entry.path().stem().string());
        fs::copy_file(entry.path(), folder_ / "flat" / (key + ".png"));
        const int number = first_ + (kind[0] == 'd');
        const std::string text =
            std::string_view(label) == ".json" ? concat("{\"", key_, "\": ", number, "}") : std::to_string(number);
        if (*label) write_file((folder_ / "flat" / (key + label)).string(), text);
      }
    std::set<std::string> keys;
    for (const auto& entry : fs::directory_iterator(folder_ / "flat")) keys.insert(entry.path().stem().string());
    int n = 0;
    for (const std::string& key : keys) {
      members.push_back(key + ".png");
      if (*label) members.push_back(key + label);
      if (++n % each == 0) write();
    }
    if (!members.empty()) write();
  }
  Splits load(bool labels = true) const {
    return load_webdataset({.dir = (folder_ / "shards").string(), .labels = labels});
  }
  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  int first_ = 0;              // label
  std::string key_ = "label";  // of the labels in .json
};

TEST_F(WebDatasetTest, HasTheImagesAndLabelsOfItsArchives) {
  pictures("a", {"cat", "dog"}, 1, 6);
  for (const char* label : {".cls", ".json"}) {
    fs::remove_all(folder_ / "shards");
    pack("a/train", "shards/train/s", 5, label);
    pack("a/test", "shards/val/s", 100, label);
    const Splits set = load();
    EXPECT_EQ(set.train.size(), 12);
    EXPECT_EQ(set.test.size(), 12);
    EXPECT_FALSE(set.val);
    EXPECT_EQ(set.train.class_names, (std::vector<std::string>{"0", "1"}));
    EXPECT_EQ(test::values(set.train.labels), (std::vector<double>{0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1}));
    EXPECT_EQ(set.train.encoded->name(5), "s-001.tar:cat15.png");
    const Splits folder = find_dataset("imagefolder").load({.dir = (folder_ / "a").string()});
    std::vector<uint8_t> a(192), b(192);
    for (int64_t i = 0; i < 12; ++i) {
      set.train.copy_image(i, a.data()), folder.train.copy_image(i, b.data());
      EXPECT_EQ(a, b);
    }
  }
  write_file((folder_ / "shards/classes.txt").string(), "tom\nrex\n");
  EXPECT_EQ(load().train.class_names, (std::vector<std::string>{"tom", "rex"}));
  write_file((folder_ / "shards/classes.txt").string(), "tom\n");
  EXPECT_MENTIONS(test::message_of<FormatError>([&] { load(); }), "names 1 classes, labels go up to 1");
  write_file(path("shards/classes.txt"), "tom\r\n\r\nrex\r\n\r\n\n");  // as Windows writes it
  EXPECT_EQ(load().train.class_names, (std::vector<std::string>{"tom", "", "rex"}));
  EXPECT_TRUE(load().notes.empty());
}

TEST_F(WebDatasetTest, LabelsThatBeginAtOneAreSaid) {
  pictures("a", {"cat", "dog"});
  first_ = 1;
  pack("a/train", "shards/x", 30);
  const Splits set = load();
  EXPECT_EQ(set.train.class_names, (std::vector<std::string>{"0", "1", "2"}));
  EXPECT_EQ(set.notes, (std::vector<std::string>{path("shards") + ": no training image has label 0, from which labels "
                                                                  "count"}));
}

TEST_F(WebDatasetTest, ArchivesOfOneFolderAndImagesWithoutLabels) {
  pictures("a", {"cat", "dog"});
  pack("a/train", "shards/x-train", 7);
  EXPECT_EQ(load().test.size(), 2);  // every tenth of a class
  pack("a/test", "shards/x-test", 30);
  EXPECT_EQ(load().test.size(), 24);
  EXPECT_EQ(load().train.size(), 24);
  fs::remove_all(folder_ / "shards");
  pack("a/train", "shards/x", 7, "");
  EXPECT_EQ(load(false).train.classes, 0);
  EXPECT_EQ(load(false).train.size(), 24);
  EXPECT_MENTIONS(test::message_of<FormatError>([&] { load(); }), "train with `ringtape pretrain`");
  fs::resize_file(folder_ / "shards/x-001.tar", 700);
  EXPECT_MENTIONS(test::message_of<FormatError>([&] { load(false); }), "x-001.tar");
  fs::remove_all(folder_ / "shards");
  fs::create_directories(folder_ / "shards");
  EXPECT_MENTIONS(test::message_of<MissingData>([&] { load(); }), "no .tar files in");
}

TEST_F(WebDatasetTest, FoldersOfSplitsNeedOneOfTestImages) {
  pictures("a", {"cat", "dog"});
  pack("a/train", "shards/train/s", 30);
  EXPECT_MENTIONS(test::message_of<IoError>([&] { load(); }), "shards: has train/ but neither test/ nor val/");
  EXPECT_EQ(load(false).train.size(), 24);
  EXPECT_EQ(load(false).test.size(), 0);
  pack("a/test", "shards/held/s", 30);
  const auto with = [&](const SplitFolderOptions& folders) {
    return load_webdataset({.dir = (folder_ / "shards").string(), .settings = WebDatasetOptions{.folders = folders}});
  };
  EXPECT_MENTIONS(test::message_of<IoError>([&] { with({.val = "held"}); }), "shards: no test images; --test-dir");
  EXPECT_EQ(with({.test = "held"}).test.size(), 24);
  EXPECT_EQ(with({.val = "held", .test = "held"}).val.value().size(), 24);
  fs::remove(path("shards/train/s-000.tar"));  // another data set's folder
  EXPECT_THROW(load(), MissingData);
}

TEST_F(WebDatasetTest, AFolderOfASplitWithoutArchivesIsRefused) {
  pictures("a", {"cat", "dog"});
  pack("a/train", "shards/train/s", 30);
  pack("a/test", "shards/test/s", 30);
  EXPECT_EQ(load().test.size(), 24);
  fs::create_directories(folder_ / "shards/val");
  EXPECT_MENTIONS(test::message_of<MissingData>([&] { load(); }), "no .tar files in " + path("shards/val"));
  fs::remove_all(folder_ / "shards/val");
  const std::string archive = path("shards/test/s-000.tar");
  for (const char* name : {"s-000.tar.gz", "s-000.tgz", "s-000.tar.zst", "s-000.tar.xz", "s-000.tar.bz2"}) {
    const std::string compressed = path(concat("shards/test/", name));
    fs::rename(archive, compressed);
    EXPECT_MENTIONS(test::message_of<MissingData>([&] { load(); }),
                    compressed + " is compressed; unpack it, so that there is s-000.tar");
    fs::copy_file(compressed, archive);
    EXPECT_EQ(load().test.size(), 24) << name;
    fs::remove(compressed);
  }
  fs::rename(archive, archive + ".old");
  EXPECT_MENTIONS(test::message_of<MissingData>([&] { load(); }), "no .tar files in " + path("shards/test"));
}

TEST_F(WebDatasetTest, WordsInNamesTellTheSplits) {
  pictures("a", {"cat", "dog"}, 1, 6);
  for (const char* name : {"latest", "carnival", "contest", "interval_7", "x"})
    pack("a/train", concat("shards/", name), 30);
  EXPECT_EQ(load().train.size(), 54);  // each tenth of a class is a test image
  const auto sizes = [&](const std::string& name) {
    pack("a/test", "shards/" + name, 30);
    const Splits set = load();
    fs::remove(path(concat("shards/", name, "-000.tar")));
    return std::vector<int64_t>{set.train.size(), set.test.size(), set.val ? set.val->size() : 0};
  };
  for (const char* name : {"test", "latest_test", "x.test0", "set-val", "validation", "2validation2", "Test", "dev"})
    EXPECT_EQ(sizes(name), (std::vector<int64_t>{60, 12, 0})) << name;
  pack("a/test", "shards/x-test", 30);
  EXPECT_EQ(sizes("x-validation"), (std::vector<int64_t>{60, 12, 12}));
  fs::remove_all(folder_ / "shards");
  pack("a/test", "shards/x-val", 30);
  EXPECT_MENTIONS(test::message_of<MissingData>([&] { load(); }), "no archives of training images in ");
}

TEST_F(WebDatasetTest, JsonWithoutLabelIsNone) {
  pictures("a", {"cat", "dog"}, 1, 6);
  key_ = "width";
  pack("a/train", "shards/x", 7, ".json");
  const Splits set = load(false);
  EXPECT_EQ(set.train.size(), 12);
  EXPECT_EQ(set.train.classes, 0);
  ASSERT_EQ(set.notes.size(), 1u);
  EXPECT_MENTIONS(set.notes[0], "not read: 12 members of archives that are neither images nor labels");
  EXPECT_MENTIONS(test::message_of<FormatError>([&] { load(); }), "has no label (.cls, or .json with \"label\")");
}

TEST_F(WebDatasetTest, TrainsAndResumesInTheMiddleOfAnEpoch) {
  pictures("a", {"cat", "dog"});
  pack("a/train", "shards/train/s", 5);
  pack("a/test", "shards/test/s", 30);
  const std::string train =
      "train --data webdataset --data-dir shards --width 2 --batch-size 5 --val-size 4 --epochs 2 --threads 1 "
      "--schedule constant --warmup-epochs 0 --image-size 8 --shuffle-buffer 6 --crop-low 0.3 --workers 2";
  ASSERT_EQ(run(train + " --run whole"), 0) << file("err");
  ASSERT_EQ(run(train + " --run parts --max-steps 6"), 0) << file("err");
  ASSERT_EQ(run("train --run parts --resume --max-steps 0"), 0) << file("err");
  EXPECT_EQ(file("runs/parts/exported/model.safetensors"), file("runs/whole/exported/model.safetensors"));
  pack("a/train", "shards/train/s", 6);
  EXPECT_MENTIONS(refused("train --run parts --resume --epochs 3"),
                  "has other files than when the run began: train/s-00");
}

TEST(ShuffleBuffer, DrawsEachSampleOnceFromTheNextOnes) {
  ShardImages images({"a", "b", "c", "d"});
  for (int64_t i = 0; i < 400; ++i) images.add(i / 100, "x", 0, 1);
  std::vector<int64_t> samples;
  for (int64_t i = 399; i >= 0; --i)
    if (i % 7 != 0) samples.push_back(i);
  const std::set<int64_t> all(samples.begin(), samples.end());
  std::set<std::vector<int64_t>> orders, shards;
  for (const int64_t buffer : {1, 10, 100, 1000, 0})
    for (int64_t epoch = 0; epoch < 3; ++epoch) {
      const auto order = shuffled(samples, 1, epoch, buffer, &images);
      EXPECT_EQ(order, shuffled(samples, 1, epoch, buffer, &images));
      EXPECT_EQ(std::set<int64_t>(order.begin(), order.end()), all);
      EXPECT_EQ(order.size(), all.size());
      orders.insert(order);
      if (buffer != 1) continue;  // as they lie in the archives, these in random order
      std::vector<int64_t> first;
      for (size_t i = 0; i < order.size(); ++i)
        if (i == 0 || order[i] / 100 != order[i - 1] / 100) first.push_back(order[i] / 100);
        else EXPECT_GT(order[i], order[i - 1]);
      EXPECT_EQ(first.size(), 4u);
      shards.insert(first);
    }
  EXPECT_EQ(orders.size(), 15u);
  EXPECT_GT(shards.size(), 1u);
  // No sample comes more than a buffer before its turn, and they are well mixed.
  const auto in_order = shuffled(samples, 1, 0, 1, &images), mixed = shuffled(samples, 1, 0, 50, &images);
  double moved = 0;
  for (size_t i = 0; i < mixed.size(); ++i) {
    const auto turn = std::find(in_order.begin(), in_order.end(), mixed[i]) - in_order.begin();
    EXPECT_LT(turn, int64_t(i) + 50);
    moved += double(std::abs(turn - int64_t(i)));
  }
  EXPECT_GT(moved / double(mixed.size()), 20);
}

}  // namespace
}  // namespace ringtape
