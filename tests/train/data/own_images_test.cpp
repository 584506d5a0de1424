// A user's images through the ringtape binary: without labels, decoded for each batch, with validation images, changed
// between two runs.
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/support/image_folders.h"
#include "tests/support/jpeg.h"
#include "train/data/dataset.h"
#include "train/data/image/image_file.h"
#include "train/io/json.h"

namespace ringtape {
namespace {

class OwnImagesTest : public test::ImageFolders {
 protected:
  // Trains to the end, and again to the middle of an epoch and from there; the weights must be the same.
  void expect_resumes(const std::string& arguments, const std::string& weights) const {
    ASSERT_EQ(run(arguments + " --run whole"), 0) << file("err");
    ASSERT_EQ(run(arguments + " --run parts --max-steps 4"), 0) << file("err");
    const std::string command = arguments.substr(0, arguments.find(' '));
    ASSERT_EQ(run(command + " --run parts --resume --max-steps 0"), 0) << file("err");
    EXPECT_EQ(file("runs/parts/exported/" + weights), file("runs/whole/exported/" + weights));
  }
};

constexpr const char* kSmall =
    " --width 2 --batch-size 4 --epochs 2 --threads 1 --schedule constant --warmup-epochs 0 --image-store files"
    " --image-size 8 ";

TEST_F(OwnImagesTest, WithoutLabelsATrainingResumesInTheMiddleOfAnEpoch) {
  for (int i = 0; i < 12; ++i) picture(concat("flat/", i < 6 ? "" : "deeper/", i, ".png"), i % 2, i, 1, 12);
  const std::string pretrain = std::string("pretrain --method simclr --data imagefolder --data-dir flat") + kSmall;
  expect_resumes(pretrain, "backbone.safetensors");
  EXPECT_MENTIONS(file("runs/whole/train.log"), "12 training, 0 validation, 0 test images of 8x8x3, without labels");
  EXPECT_EQ(file("runs/whole/metrics.jsonl").find("knn"), std::string::npos);
  EXPECT_MENTIONS(refused(pretrain + "--online-probe"), "--online-probe: learns labels, which the images of");
  EXPECT_MENTIONS(refused(pretrain + "--patience 2"), "name others with --knn-data");
  std::filesystem::remove_all(folder_ / "flat/deeper");
  EXPECT_MENTIONS(refused("train --data imagefolder --data-dir flat", 1),
                  "images without labels train with `ringtape pretrain`");
}

TEST_F(OwnImagesTest, WhatWasTrainedWithoutLabelsIsExported) {
  for (int i = 0; i < 12; ++i) picture(concat("flat/", i, ".png"), i % 2, i, 1, 12);
  picture("flat/deeper/down/12.png", 0, 0);
  const std::string pretrain = std::string("pretrain --method simclr --data imagefolder --data-dir flat") + kSmall;
  ASSERT_EQ(run(pretrain + "--run one --train-fraction 0.5"), 0) << file("err");
  EXPECT_MENTIONS(file("runs/one/train.log"), "7 training");
  ASSERT_EQ(run("export one --backbone --out one.safetensors"), 0) << file("err");
  ASSERT_EQ(run("embed one --out one.npy"), 0) << file("err");  // of all images: none are for tests
  EXPECT_MENTIONS(file("out"), "(13, 16) of the train images");
  EXPECT_MENTIONS(refused("predict one flat/1.png"), "knows no classes; train a last layer");
  EXPECT_MENTIONS(refused("evaluate one --protocol knn", 1), "images without labels train with");
}

TEST_F(OwnImagesTest, AnotherRunInItsPlaceHasItsOwnFiles) {
  pictures("a", {"cat", "dog"}, 1, 6);
  pictures("b", {"cat", "dog"}, 0.5, 12);
  const std::string train = std::string("train --data imagefolder --model resnet18 --run one") + kSmall;
  ASSERT_EQ(run(train + "--data-dir a"), 0) << file("err");
  ASSERT_EQ(run(train + "--data-dir b --overwrite"), 0) << file("err");
  ASSERT_EQ(run("train --run one --resume --epochs 3"), 0) << file("err");
}

TEST_F(OwnImagesTest, RanksMustHaveTheSameFiles) {
  pictures("a", {"cat", "dog"}, 1, 6);
  std::filesystem::copy(folder_ / "a", folder_ / "b", std::filesystem::copy_options::recursive);
  std::filesystem::rename(folder_ / "b/train/cat/10.png", folder_ / "b/train/cat/99.png");
  write_file((folder_ / "rank.sh").string(),
             concat("exec ", RINGTAPE_BINARY, " train --data imagefolder --model resnet18", kSmall,
                    "--data-dir $([ $RANK = 0 ] && echo a || echo b) --run ranks\n"));
  EXPECT_NE(run("launch -n 2 -- /bin/sh rank.sh"), 0);
  EXPECT_MENTIONS(file("err"), "the images differ: rank 1 has 'images ");
}

TEST_F(OwnImagesTest, FeaturesAreTestedWithOtherImages) {
  for (int i = 0; i < 9; ++i) picture(concat("flat/", i, ".png"), i % 2, i, 1, 12);
  pictures("labelled", {"cat", "dog"});
  const std::string pretrain =
      std::string("pretrain --method simclr --data imagefolder --data-dir flat --knn-k 3") + kSmall;
  ASSERT_EQ(run(pretrain + "--knn-data imagefolder --knn-dir labelled --run one"), 0) << file("err");
  EXPECT_MENTIONS(file("runs/one/metrics.jsonl"), "{\"split\":\"knn\",");
  EXPECT_MENTIONS(file("runs/one/train.log"), "tested with imagefolder");
  std::filesystem::create_directories(folder_ / "cifar");  // of another size, and all black
  for (int part = 0; part < 6; ++part) {
    const std::filesystem::path path =
        folder_ / "cifar" / (part > 0 ? concat("data_batch_", part, ".bin") : "test_batch.bin");
    write_file(path.string(), "");
    std::filesystem::resize_file(path, 10'000 * 3073);
  }
  write_file((folder_ / "cifar/batches.meta.txt").string(), "a\nb\nc\nd\ne\nf\ng\nh\ni\nj\n");
  const std::string cifar = "--knn-data cifar10 --knn-dir cifar --knn-bank 20 --limit-eval-batches 1 ";
  ASSERT_EQ(run(pretrain + cifar + "--run two"), 0) << file("err");
  EXPECT_MENTIONS(refused(pretrain + "--knn-data mnist --knn-dir absent", 1), "mnist");
  EXPECT_MENTIONS(refused(pretrain + "--knn-dir labelled"), "/labelled: needs --knn-data");
  EXPECT_MENTIONS(refused(std::string(pretrain).replace(pretrain.find("--width 2"), 9, "--model mlp") + cifar),
                  "--knn-data cifar10: has images of (32, 32, 3), mlp is trained on images of (8, 8, 3)");
}

TEST_F(OwnImagesTest, ImagesThatAreDecodedForEachBatchResumeInTheMiddleOfAnEpoch) {
  pictures("a", {"cat", "dog"}, 1, 6);
  picture("a/val/cat/1.png", 0, 3), picture("a/val/dog/1.png", 1, 4);
  const std::string train = std::string("train --data imagefolder --model resnet18 --data-dir a") + kSmall;
  expect_resumes(train, "model.safetensors");
  EXPECT_MENTIONS(file("runs/whole/train.log"), "12 training, 2 validation, 12 test images");
  ASSERT_EQ(run(train + "--val-size 3 --run again"), 0) << file("err");
  EXPECT_MENTIONS(file("err"), "--val-size is not used");
  EXPECT_EQ(file("runs/again/exported/model.safetensors"), file("runs/whole/exported/model.safetensors"));
  picture("a/train/dog/12.png", 1, 2, 1, 30);
  EXPECT_MENTIONS(refused("train --run parts --resume --epochs 3"),
                  "has other files than when the run began: train/dog/12.png: has ");
}

TEST_F(OwnImagesTest, DamagedImagesAreListedAndLeftOutIfWanted) {
  pictures(".", {"a", "b"});
  write_file((folder_ / "train/a/05.png").string(), "");
  write_file((folder_ / "train/b/99.jpg").string(), "\xff\xd8");
  write_file((folder_ / "test/a/05.png").string(), "<html>404</html>");
  const std::string root = folder_.string(), of_folder = " imagefolder --data-dir .";
  EXPECT_EQ(run("data verify" + of_folder), 1);
  const std::string said = file("out");
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 5);
  for (const char* line : {"train/a/05.png: is empty; expected an image\n", "train/b/99.jpg: damaged JPEG data (",
                           "test/a/05.png: no image (it begins like none of", "24 training images", "24 test images"})
    EXPECT_MENTIONS(said, line);
  const std::string training = std::string("train --data") + of_folder + " --run one" + kSmall;
  EXPECT_MENTIONS(refused(training, 1), "is empty; expected an image");
  ASSERT_EQ(run(training + "--overwrite --skip-damaged --max-steps 4"), 0) << file("err");
  EXPECT_MENTIONS(file("runs/one/train.log"), "3 damaged images are left out, such as ");
  const std::string files = file("runs/one/data-files.tsv");
  EXPECT_MENTIONS(files, "\ndamaged train\ta/05.png\t0\ndamaged train\tb/99.jpg\t2\ndamaged test\ta/05.png\t16\n");
  picture("train/a/05.png", 0, 5);
  EXPECT_EQ(run("train --run one --resume"), 2);
  EXPECT_MENTIONS(file("err"), "train/a/05.png: was not there");
  std::filesystem::remove(folder_ / "train/a/05.png");
  EXPECT_EQ(run("train --run one --resume"), 2);
  EXPECT_MENTIONS(file("err"), "damaged train/a/05.png: is not there any more");
  write_file((folder_ / "train/a/05.png").string(), "");
  ASSERT_EQ(run("train --run one --resume --max-steps 0"), 0) << file("err");
  for (const char* split : {"train", "test"})
    for (const char* kind : {"a", "b"})
      for (int i = 0; i < 12; ++i) write_file(concat(root, "/", split, "/", kind, "/", 10 + i, ".png"), "");
  EXPECT_MENTIONS(refused(training + "--overwrite --skip-damaged", 1), "all 26 images for `train` are damaged, such");
}

TEST_F(OwnImagesTest, SplitFoldersHaveTheNamesThatOthersGiveThem) {
  struct {
    const char *train, *val, *test;
  } const names[] = {{"Training", "", "Testing"},
                     {"Train", "", "Test"},
                     {"train", "valid", "test"},
                     {"TRAIN", "Validation", "TEST"},
                     {"train", "dev", "testing"}};
  for (const auto& [train, val, test] : names) {
    for (const char* kind : {"cat", "dog"}) {
      for (int i = 0; i < 4; ++i) picture(concat("set/", train, "/", kind, "/", i, ".png"), 0, i);
      picture(concat("set/", test, "/", kind, "/9.png"), 0, 9);
      if (*val) picture(concat("set/", val, "/", kind, "/8.png"), 0, 8);
    }
    const Json info = result_of("data info imagefolder --data-dir set");
    EXPECT_EQ(info["classes"], (Json{"cat", "dog"}));
    EXPECT_EQ(info["train"]["images"], 8) << train;
    EXPECT_EQ(info["test"]["images"], 2) << test;
    EXPECT_EQ(info.contains("val"), *val != 0) << val;
    std::filesystem::remove_all(folder_ / "set");
  }
  picture("two/train/cat/1.png", 0, 1), picture("two/test/cat/1.png", 0, 1);
  picture("two/Valid/cat/1.png", 0, 1), picture("two/val/cat/1.png", 0, 1);
  EXPECT_MENTIONS(refused("data info imagefolder --data-dir two"), "two: has 'Valid' and 'val'; --val-dir says which");
  EXPECT_EQ(result_of("data info imagefolder --data-dir two --val-dir val")["val"]["images"], 1);
}

TEST_F(OwnImagesTest, FoldersThatAreNoClassesAreRefused) {
  const auto info = [this](const std::string& root) { return refused("data info imagefolder --data-dir " + root, 1); };
  picture("pets/images/1.png", 0, 1), picture("pets/annotations/trimaps/1.png", 0, 1);
  EXPECT_MENTIONS(info("pets"), "pets: has only 'annotations' and 'images', which look like parts of a data set");
  for (int i = 0; i < 12; ++i) picture(concat("around/set/train/cat/", i, ".png"), 0, i);
  picture("around/set/valid/cat/1.png", 0, 1);
  EXPECT_MENTIONS(info("around"), "around: has only 'set', with 'train' and 'valid' in it; use --data-dir around/set");
  picture("half/Test/1.png", 0, 1);
  EXPECT_MENTIONS(info("half"), "half: has only 'Test', which are no classes; expected train/CLASS/IMAGE");
}

// Words of splits may be classes beside others; of the classes, a training says the first ones.
TEST_F(OwnImagesTest, ClassesAreNamed) {
  for (const char* kind : {"valid", "other", "Train"})
    for (int i = 10; i < 22; ++i) picture(concat("set/", kind, "/", i, ".png"), *kind == 'v', i);
  std::filesystem::rename(folder_ / "set/valid", folder_ / "set/correct");
  train("--data-dir set --run three");
  EXPECT_MENTIONS(file("out"), ", 3 classes (Train, correct, other)");
  for (const char* kind : {"Train", "correct"}) std::filesystem::remove_all(folder_ / "set" / kind);
  train("--data-dir set --run one");
  EXPECT_MENTIONS(file("err"), "set: has one class, 'other', so every prediction will be right");
}

TEST_F(OwnImagesTest, RareClassesHaveATestImageOrAreNoted) {
  const std::pair<const char*, int> kinds[] = {{"akiec", 9}, {"bcc", 25}, {"melanoma", 2}, {"nevus", 30}, {"vasc", 1}};
  for (const auto& [kind, count] : kinds)
    for (int i = 0; i < count; ++i) picture(concat("skin/", kind, "/", 10 + i, ".png"), 0, i);
  const Json info = result_of("data info imagefolder --data-dir skin");
  EXPECT_EQ(info["test"]["images"], 1 + 2 + 1 + 3);
  ASSERT_EQ(info["notes"].size(), 1u);
  EXPECT_MENTIONS(info["notes"][0].get<std::string>(), "skin: no test images of 1 of 5 classes: 'vasc'");
}

// Stored lying, 4 x 2 pixels, left half dark; to be seen upright, with the dark half above or below.
TEST_F(OwnImagesTest, ImagesThatAreNotUprightAreCountedAndTurnedIfWanted) {
  const auto photo = [](int value) {
    std::vector<uint8_t> pixels(3 * 16 * 8);
    for (size_t i = 0; i < pixels.size(); ++i) pixels[i] = i / 3 % 16 < 8 ? 30 : 220;
    const std::string jpeg = test::jpeg_file(16, 8, pixels, {.quality = 95});
    const std::string exif =
        std::string("Exif\0\0MM\0*\0\0\0\10\0\1\1\22\0\3\0\0\0\1\0", 25) + char(value) + std::string(6, '\0');
    return jpeg.substr(0, 2) + "\xff\xe1" + '\0' + char(exif.size() + 2) + exif + jpeg.substr(2);
  };
  for (const char* split : {"train", "test"})
    for (const char* kind : {"a", "b"})
      for (int i = 0; i < 4; ++i) {
        std::filesystem::create_directories(folder_ / split / kind);
        write_file((folder_ / split / kind / concat(i, ".jpg")).string(), photo(i < 2 ? 1 : kind[0] == 'a' ? 6 : 8));
      }
  const Json stored = result_of("data info imagefolder --data-dir .");
  EXPECT_MENTIONS(stored["notes"][0].get<std::string>(), "4 of 8 training images are not upright by their Exif data");
  const std::string of_folder = " --data imagefolder --data-dir . --image-size 8 --exif-orientation";
  for (const char* store : {"memory", "disk", "files"}) {
    const std::string run_of = concat("--run ", store, " --image-cache cache --image-store ", store);
    ASSERT_EQ(run(concat("train --model mlp --hidden 4 --batch-size 4 --epochs 1 --threads 1 ", run_of, of_folder)), 0)
        << file("err");
    ASSERT_EQ(run(concat("embed ", store, " --split train --out ", store, ".npy")), 0) << file("err");
  }
  EXPECT_EQ(file("memory.npy"), file("files.npy"));
  EXPECT_EQ(file("memory.npy"), file("disk.npy"));
  EXPECT_MENTIONS(file("runs/memory/data.json"), "\"upright\": true");
}

// Everywhere: in memory, in a file, for each batch, and by predict, which has it from the weights.
TEST_F(OwnImagesTest, MiddlesOfScaledImagesAreTheSameEverywhere) {
  for (const char* split : {"train", "test"})
    for (int i = 0; i < 8; ++i) picture(concat("set/", split, "/", i % 2 ? "a" : "b", "/", i, ".png"), i % 2, i, 1, 20);
  const std::string of_set = " --data imagefolder --data-dir set --image-size 8 --resize 12 --interpolation bicubic ";
  std::vector<std::string> predicted;
  for (const std::string store : {"memory", "disk", "files"}) {
    ASSERT_EQ(run(concat("train --model mlp --hidden 4 --batch-size 4 --epochs 1 --threads 1 --run ", store, of_set,
                         "--image-cache cache --image-store ", store)),
              0)
        << file("err");
    ASSERT_EQ(run(concat("embed ", store, " --split test --out ", store, ".npy")), 0) << file("err");
    ASSERT_EQ(run(concat("evaluate ", store, " --logits logits-", store, ".safetensors")), 0) << file("err");
    ASSERT_EQ(run(concat("predict ", store, " set/test/a set/test/b --csv")), 0) << file("err");
    predicted.push_back(file("out"));
  }
  EXPECT_EQ(file("memory.npy"), file("files.npy"));
  EXPECT_EQ(file("memory.npy"), file("disk.npy"));
  EXPECT_EQ(predicted[0], predicted[2]);
  EXPECT_MENTIONS(file("runs/memory/data.json"), "\"scaled\": 12");
  EXPECT_MENTIONS(file("runs/memory/data.json"), "\"filter\": \"bicubic\"");
  EXPECT_MENTIONS(file("runs/memory/exported/README.md"), "of Resize(12, InterpolationMode.BICUBIC), CenterCrop(8)");
  EXPECT_MENTIONS(refused("data info imagefolder --data-dir set --image-size 8 --resize 7"),
                  "--resize 7: expected an --image-size of at most that");
  EXPECT_MENTIONS(refused("data info imagefolder --data-dir set --resize 7"), "--resize 7: expected an --image-size");
}

TEST_F(OwnImagesTest, FeaturesHaveTheNamesOfTheirFiles) {
  const char* const names[] = {"cat/10.png", "cat/9.png", "cat/a/z.png", "cat/a-1.png", "cat/c.png", "dog/1.png"};
  std::string lines;
  for (int i = 0; i < 6; ++i) {
    for (const char* split : {"train", "test"}) picture(concat("set/", split, "/", names[i]), 0, 9 * i);
    picture(concat("one/", i, "/test/", names[i]), 0, 9 * i);
    for (const char* kind : {"cat", "dog"}) picture(concat("one/", i, "/train/", kind, "/1.png"), 0, 1);
    lines += concat(names[i], "\n");
  }
  ASSERT_EQ(run("train --model mlp --hidden 4 --batch-size 2 --epochs 1 --threads 1 --run r --data imagefolder "
                "--data-dir set"),
            0)
      << file("err");
  ASSERT_EQ(run("embed r --out all.npy --labels y.npy --files names.txt"), 0) << file("err");
  EXPECT_EQ(file("names.txt"), lines);
  const size_t row = 4 * sizeof(float);
  const std::string all = file("all.npy");
  for (size_t i = 0; i < 6; ++i) {
    ASSERT_EQ(run(concat("embed r --out one.npy --data-dir one/", i)), 0) << file("err");
    const std::string one = file("one.npy");
    EXPECT_EQ(all.substr(all.size() - (6 - i) * row, row), one.substr(one.size() - row)) << names[i];
  }
  EXPECT_MENTIONS(refused("embed r --out a.npy --files a.npy"), "--files a.npy: is also --out; choose two files");
  EXPECT_MENTIONS(refused("embed r --out a.npy --labels b --files b"), "--files b: is also --labels");
  ASSERT_EQ(run("train --model mlp --hidden 4 --batch-size 4 --epochs 1 --train-size 20 --val-size 0 --test-size 4 "
                "--data shapes --run drawn"),
            0)
      << file("err");
  EXPECT_MENTIONS(refused("embed drawn --out new.npy --files names"), "--files: the images of shapes are no files");
  for (const char* left : {"a.npy", "new.npy", "names"}) EXPECT_FALSE(std::filesystem::exists(folder_ / left)) << left;
}

TEST(PixelStatistics, AChannelWithOneLevelHasNoDeviation) {
  for (const int64_t pixels : {1, 3, 7, 48, 1000})
    for (int level = 0; level < 256; ++level) {
      Tensor images({1, 1, pixels, 2}, DType::u8);
      for (int64_t i = 0; i < 2 * pixels; ++i) images.data<uint8_t>()[i] = uint8_t(i % 2 == 0 ? level : i % 4);
      const PixelStatistics got = pixel_statistics(images);
      ASSERT_EQ(got.deviation[0], 0) << level << ", " << pixels << " times";
      ASSERT_EQ(got.deviation[1] > 0, pixels > 1);
      ASSERT_EQ(got.highest, std::max(level, pixels > 1 ? 3 : 1));
    }
}

// One level of red, which the sums of squares would not show as such.
TEST_F(OwnImagesTest, DataInfoNotesLevelsThatAreProbablyNotMeantSo) {
  for (const char* split : {"train", "test"})
    for (const char* kind : {"a", "b"}) {
      const std::filesystem::path at = folder_ / split / kind;
      std::filesystem::create_directories(at);
      std::string pixels;
      for (int i = 0; i < 16; ++i) pixels += {11, char(i + kind[0] % 2), char(2 * i)};
      write_file((at / "1.ppm").string(), "P6 4 4 255\n" + pixels);
    }
  const Json info = result_of("data info imagefolder --data-dir .");
  ASSERT_EQ(info["notes"].size(), 2u);
  EXPECT_MENTIONS(info["notes"][0].get<std::string>(), "the highest level of the training images is 30 of 255");
  EXPECT_MENTIONS(info["notes"][1].get<std::string>(), "all pixels of the training images have the same red; it is");
  EXPECT_EQ(info["normalisation"]["deviation"][0].get<double>(), 1);
}

TEST_F(OwnImagesTest, DataInfoDrawsWhatATrainingGets) {
  pictures("a", {"cat", "dog"});
  picture("a/val/cat/1.png", 0, 3);
  const auto size_of = [&](const std::string& name) {
    const std::string path = (folder_ / name).string();
    return read_image_size(path);
  };
  const std::string info = "data info imagefolder --data-dir a ";
  const Json plain = result_of(info + "--sheet plain.png");
  EXPECT_EQ(plain["val"]["images"], Json(1));
  EXPECT_EQ(size_of("plain.png"), (ImageSize{8 * 12 + 4, 7 * 12 + 4}));
  result_of(info + "--sheet changed.png --flip --jitter 1 --crop-low 0.3 --policy trivialaugment --mixup 0.2");
  result_of(info + "--sheet views.png --method simclr");
  EXPECT_NE(file("changed.png"), file("plain.png"));
  EXPECT_NE(file("views.png"), file("changed.png"));
  result_of(info + "--sheet again.png --method simclr --image-store files");
  EXPECT_EQ(file("again.png"), file("views.png"));
  for (int i = 0; i < 3; ++i) picture(concat("flat/", i, ".png"), 0, i);
  EXPECT_EQ(result_of("data info imagefolder --data-dir flat")["train"]["images"], Json(3));
  EXPECT_MENTIONS(refused(info + "--sheet nowhere/x.png", 1), "nowhere/x.png");
}

}  // namespace
}  // namespace ringtape
