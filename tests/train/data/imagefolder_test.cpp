// Folders of a user's images, with the ringtape binary: what is stored about the training images, and what happens when
// the folder changes later.
#include "train/data/files/imagefolder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <sstream>

#include "tests/support/image_folders.h"
#include "train/data/dataset.h"
#include "train/io/json.h"
#include "train/io/safetensors.h"

namespace ringtape {
namespace {

namespace fs = std::filesystem;

class ImageFolderTest : public test::ImageFolders {
 protected:
  std::vector<double> logits(const std::string& arguments) const {
    EXPECT_EQ(run("evaluate " + arguments + " --logits logits.safetensors"), 0) << file("err");
    return test::values(read_safetensors((folder_ / "logits.safetensors").string())["logits"]);
  }
};

TEST_F(ImageFolderTest, EvaluationNormalisesAsTheTrainingDid) {
  pictures("a", {"cat", "dog"});
  pictures("darker", {"cat", "dog"}, 0.4);  // the same test images
  train("--data-dir a --run one");
  const Json first = result_of("evaluate one");
  const std::vector<double> outputs = logits("one");
  for (const std::string what : {"one", "runs/one/exported/model.safetensors", "runs/one/checkpoints/last"}) {
    EXPECT_EQ(result_of("evaluate " + what + " --data-dir darker")["loss"], first["loss"]) << what;
    EXPECT_EQ(logits(what + " --data-dir darker"), outputs) << what;
  }
  ASSERT_EQ(run("export one --data-dir darker --out moved.safetensors"), 0) << file("err");
  EXPECT_EQ(file("moved.safetensors"), file("runs/one/exported/model.safetensors"));
  EXPECT_EQ(file("moved.md")
                    .substr(file("moved.md").find("Images are"))
                    .find("Classes, in the order of the outputs: [\"cat\",\"dog\"]") != std::string::npos,
            true);
  EXPECT_EQ(result_of("evaluate moved.safetensors --data-dir darker")["loss"], first["loss"]);
  EXPECT_NE(result_of("evaluate one --normalize imagenet")["loss"], first["loss"]);  // if the flag requests it
  ASSERT_EQ(run("embed one --out a.npy"), 0) << file("err");
  ASSERT_EQ(run("embed one --data-dir darker --out b.npy"), 0) << file("err");
  EXPECT_EQ(file("a.npy"), file("b.npy"));
  picture("a/train/cat/99.png", 0, 99, 0.1);  // added later
  EXPECT_EQ(result_of("evaluate one")["loss"], first["loss"]);
}

// Weights of another program say nothing of their images; export writes a file that does, by those of a data set.
TEST_F(ImageFolderTest, ForeignWeightsGetWhatPredictNeedsByAnExport) {
  pictures("a", {"cat", "dog"});
  train("--data-dir a --run one");
  write_safetensors((folder_ / "foreign.safetensors").string(),
                    read_safetensors((folder_ / "runs/one/exported/model.safetensors").string()).tensors);
  EXPECT_MENTIONS(refused("predict foreign.safetensors a/test"),
                  "`ringtape export FILE --model NAME --data imagefolder --data-dir DIR --image-size N --out "
                  "NEW.safetensors`, with the images that it was trained on, writes a file that does");
  const std::string of_foreign = "foreign.safetensors --model mlp --hidden 8 --data imagefolder --data-dir a ";
  ASSERT_EQ(run("export --out known.safetensors " + of_foreign), 0) << file("err");
  EXPECT_MENTIONS(file("err"), "foreign.safetensors: does not say how its images were normalised; here they are by");
  ASSERT_EQ(run("predict one a/test --csv"), 0) << file("err");
  const std::string wanted = file("out");
  ASSERT_EQ(run("predict known.safetensors a/test --csv"), 0) << file("err");
  EXPECT_EQ(file("out"), wanted);
  ASSERT_EQ(run("evaluate --normalize imagenet " + of_foreign), 0) << file("err");
  EXPECT_EQ(file("err"), "");
}

TEST_F(ImageFolderTest, AContinuedTrainingNormalisesAsBefore) {
  pictures("a", {"cat", "dog"});
  pictures("moved", {"cat", "dog"});
  pictures("darker", {"cat", "dog"}, 0.4);
  train("--data-dir a --run one");
  EXPECT_MENTIONS(refused("train --run one --resume --data-dir darker --epochs 3"),
                  "has other files than when the run began: train/dog/10.png: has ");
  const Json kept = parse_json(file("runs/one/data.json"));
  EXPECT_EQ(kept["classes"], (Json{"cat", "dog"}));
  ASSERT_EQ(run("train --run one --resume --data-dir moved --epochs 3"), 0) << file("err");
  EXPECT_EQ(parse_json(file("runs/one/data.json")), kept);
  const auto metadata = read_safetensors((folder_ / "runs/one/exported/model.safetensors").string()).metadata;
  EXPECT_EQ(parse_json(metadata.at("ringtape.mean")), kept["mean"]);
  EXPECT_EQ(parse_json(metadata.at("ringtape.deviation")), kept["deviation"]);
  pictures("others", {"cat", "zebra"});
  const std::string error = refused("train --run one --resume --data-dir others --epochs 4");
  EXPECT_MENTIONS(error, "missing: 'dog'; new: 'zebra'");
  EXPECT_MENTIONS(error, "--resume: runs/one");
}

TEST_F(ImageFolderTest, NamesCannotControlATerminal) {
  pictures("a", {"cat", "dog"});
  train("--data-dir a --run one");
  picture("odd/\x1b[2J,.png", 0, 1);
  ASSERT_EQ(run("predict one odd --csv"), 0) << file("err");
  EXPECT_EQ(file("out").find('\x1b'), std::string::npos);
  EXPECT_MENTIONS(file("out"), "\"odd/\\x1b[2J,.png\",");
}

TEST_F(ImageFolderTest, OtherPixelsInFilesOfTheSameSizeAreRefused) {
  const auto write = [&](const std::string& name, int level) {
    std::filesystem::create_directories((folder_ / name).parent_path());
    write_file((folder_ / name).string(), "P6\n4 4\n255\n" + std::string(48, char(level)));
  };
  for (const char* folder : {"a/train/cat/", "a/train/dog/", "a/test/cat/", "a/test/dog/"})
    for (int i = 0; i < 12; ++i) write(concat(folder, i, ".ppm"), 10 * i + int(folder[2]));
  for (const std::string store : {"files", "disk", "memory"}) {
    train(concat("--data-dir a --run ", store, " --image-size 4 --image-cache cache --image-store ", store));
    ASSERT_EQ(run("train --resume --epochs 3 --run " + store), 0) << file("err");
    write("a/train/dog/7.ppm", 200);
    const std::string error = refused("train --resume --epochs 4 --run " + store);
    if (store != "memory") {
      EXPECT_MENTIONS(error, "a/train/dog/7.ppm: has another content than when the run read it");
      EXPECT_MENTIONS(error, "bring it back, or choose another --run");
    }
    write("a/train/dog/7.ppm", 10 * 7 + 't');
    ASSERT_EQ(run("train --resume --epochs 4 --run " + store), 0) << file("err");
  }
}

TEST_F(ImageFolderTest, OtherClassesAreRefusedByNameButHaveFeatures) {
  pictures("a", {"cat", "dog"});
  pictures("renamed", {"dog", "zebra"});
  pictures("three", {"ant", "bee", "cow"});
  train("--data-dir a --run one");
  std::string error = refused("evaluate one --data-dir renamed");
  EXPECT_MENTIONS(error, "runs/one/exported/model.safetensors was trained on classes other than those of");
  EXPECT_MENTIONS(error, "(missing: 'cat'; new: 'zebra')");
  error = refused("evaluate one --data-dir three");
  EXPECT_MENTIONS(error, "(missing: 'cat', 'dog'; new: 'ant', 'bee', 'cow')");
  EXPECT_MENTIONS(error, "--protocol knn or linear");
  error = refused("export one --data-dir three --out x.safetensors");
  EXPECT_MENTIONS(error, "missing: 'cat', 'dog'");
  EXPECT_MENTIONS(error, "only the backbone can be exported: use --backbone");
  ASSERT_EQ(run("export one --data-dir three --backbone --out x.safetensors"), 0) << file("err");
  EXPECT_EQ(file("x.md").find("Classes"), std::string::npos);  // a backbone has no outputs
  for (const std::string set : {"renamed", "three"}) {
    EXPECT_GT(result_of("evaluate one --protocol knn --knn-k 3 --data-dir " + set)["top1"], 0);
    EXPECT_GT(result_of("evaluate one --protocol linear --probe-epochs 2 --data-dir " + set)["top1"], 0);
    EXPECT_EQ(result_of("embed one --out x.npy --data-dir " + set)["shape"][1], 8);
  }
}

TEST_F(ImageFolderTest, OtherClassesBeginWithANewLastLayer) {
  pictures("a", {"cat", "dog"});
  pictures("renamed", {"dog", "zebra"});
  pictures("three", {"ant", "bee", "cow"});
  train("--data-dir a --run one");
  train("--data-dir three --run fine --lr 0 --weights runs/one/exported/model.safetensors");
  EXPECT_MENTIONS(file("out"), "model.safetensors, with a new last layer (its own has 2 classes)");
  const Safetensors before = read_safetensors((folder_ / "runs/one/exported/model.safetensors").string()),
                    after = read_safetensors((folder_ / "runs/fine/exported/model.safetensors").string());
  for (const char* name : {"1.weight", "1.bias"})
    EXPECT_EQ(test::values(before[name]), test::values(after[name])) << name;
  EXPECT_EQ(after["3.weight"].shape(), (Shape{3, 8}));
  train("--data-dir renamed --run as_many --lr 0 --weights runs/one/exported/model.safetensors");
  EXPECT_MENTIONS(file("out"), "model.safetensors, with a new last layer (its own has other classes)");
  const Safetensors as_many = read_safetensors((folder_ / "runs/as_many/exported/model.safetensors").string());
  EXPECT_EQ(test::values(before["1.weight"]), test::values(as_many["1.weight"]));
  EXPECT_NE(test::values(before["3.weight"]), test::values(as_many["3.weight"]));
}

// Of one camera, and of several.
TEST_F(ImageFolderTest, PhotographsBecomeAsLargeAsUsual) {
  const auto loaded = [&] { return find_dataset("imagefolder").load({.dir = (folder_ / "a").string()}); };
  for (const char* name : {"train/cat/1", "train/cat/2", "train/dog/1", "train/dog/2", "test/cat/1", "test/dog/1"})
    picture(concat("a/", name, ".png"), 0, 1, 1, 256);
  EXPECT_EQ(loaded().train.image(), Shape({256, 256, 3}));
  for (const char* name : {"train/cat/1", "train/cat/2", "train/dog/1", "train/dog/2", "test/cat/1", "test/dog/1"})
    picture(concat("a/", name, ".png"), 0, 1, 1, 257);
  const Splits large = loaded();
  EXPECT_EQ(large.train.image(), Shape({224, 224, 3}));
  EXPECT_MENTIONS(large.notes.at(0),
                  "the images have 257 x 257 pixels, all are resized to 224 x 224; use --image-size");
  picture("a/train/cat/3.png", 0, 1, 1, 20);
  const Splits different = loaded();
  EXPECT_EQ(different.train.image(), Shape({224, 224, 3}));
  EXPECT_MENTIONS(different.notes.at(0), "the images have different sizes, all are resized to 224 x 224");
}

TEST_F(ImageFolderTest, WhatIsNotReadIsCountedAndSaid) {
  pictures("a", {"cat", "dog"});
  for (const char* name :
       {"a/train/cat/1.gif", "a/train/cat/2.GIF", "a/test/dog/3.svg", "a/train/dog/notes", "a/train/readme.txt"})
    write_file((folder_ / name).string(), "x");
  picture("a/train/cat/deeper/1.png", 0, 1);
  picture("a/train/loose.png", 0, 1);
  fs::create_symlink(folder_ / "nowhere.png", folder_ / "a/train/cat/9.png");
  fs::create_directory_symlink("../cat", folder_ / "a/train/cat/deeper/again");
  const Splits set = find_dataset("imagefolder").load({.dir = (folder_ / "a").string()});
  ASSERT_EQ(set.notes.size(), 1u);
  EXPECT_EQ(
      set.notes[0],
      concat((folder_ / "a").string(), ": not read: 5 files that are no images by name (2 .gif, 1 .svg, 1 .txt, ",
             "1 without an extension); 1 image outside the folders of the classes; 2 links to nothing or back to a ",
             "folder above"));
  EXPECT_EQ(set.train.size(), 25);
  const std::string dir = "--data-dir " + (folder_ / "a").string();
  train(dir + " --run one");
  EXPECT_MENTIONS(file("err"), "warning: " + set.notes[0]);
  EXPECT_MENTIONS(file("runs/one/train.log"), set.notes[0]);
  EXPECT_EQ(result_of("data info imagefolder " + dir)["notes"], Json{set.notes[0]});
  picture("a/train/cat/30.png", 0, 1, 1, 20);
  const Splits mixed = find_dataset("imagefolder").load({.dir = (folder_ / "a").string()});
  ASSERT_EQ(mixed.notes.size(), 2u);
  EXPECT_MENTIONS(mixed.notes[1], "the images have different sizes, all are resized to 32 x 32; use --image-size N");
  EXPECT_EQ(find_dataset("imagefolder")
                .load({.dir = (folder_ / "a").string(), .settings = ImageFolderOptions{{.size = 8}}})
                .notes.size(),
            1u);
}

// Small files can ask for much memory.
// Small copies of sets as they are published: the right classes, or one line that says how to get them.
TEST_F(ImageFolderTest, PublishedSetsHaveTheirClassesOrAreRefused) {
  const auto images = [this](const std::string& folder, const std::string& begin, int count) {
    for (int i = 0; i < count; ++i) picture(concat(folder, "/", begin, i, ".jpg"), int(begin.size()) % 2, i);
  };
  const auto sorted = [&](const std::string& folder, const std::vector<std::string>& classes, const char* within = "") {
    for (const std::string& name : classes) images(concat(folder, "/", name, within), name.substr(0, 2), 12);
  };
  const auto classes = [&](const std::string& folder) {
    train(concat("--image-size 8 --overwrite --run r --data-dir ", folder));
    const std::string line = file("out").substr(file("out").find("data  "));
    return line.substr(line.find(" test images"), line.find('\n') - line.find(" test images"));
  };
  const auto message = [&](const std::string& folder) {
    return refused(concat("train --data imagefolder --data-dir ", folder), 1);
  };
  // Cats and dogs, as Kaggle and as Microsoft have them.
  images("dogs/train", "cat.", 6), images("dogs/train", "dog.", 6), images("dogs/test1", "", 4);
  EXPECT_MENTIONS(message("dogs"), "dogs/train holds images");
  EXPECT_MENTIONS(file("err"), "expected train/CLASS/IMAGE with test/ or val/ next to train/, or CLASS/IMAGE");
  sorted("asirra/PetImages", {"Cat", "Dog"});
  write_file((folder_ / "asirra/PetImages/Cat/Thumbs.db").string(), "");
  EXPECT_MENTIONS(message("asirra"), "asirra: has only 'PetImages', with 'Cat' and 'Dog' in it; use --data-dir ");
  EXPECT_MENTIONS(file("err"), "asirra/PetImages\n");
  EXPECT_MENTIONS(classes("asirra/PetImages"), "2 classes (Cat, Dog)");
  // Oxford's pets.
  images("pets/images", "Abyssinian_", 6), images("pets/annotations/trimaps", "Abyssinian_", 6);
  EXPECT_MENTIONS(message("pets"), "'annotations' and 'images', which look like parts of a data set, not like classes");
  // Brain tumours, one of many with these names.
  for (const char* split : {"Training", "Testing"}) sorted(concat("tumours/", split), {"glioma", "notumor"});
  EXPECT_MENTIONS(classes("tumours"), "2 classes (glioma, notumor)");
  // Roboflow's exports, of classes and of boxes.
  for (const char* split : {"train", "valid", "test"})
    sorted(concat("flow/", split), {"cat", "dog"}), sorted(concat("boxes/", split), {"images", "labels"});
  write_file((folder_ / "flow/README.roboflow.txt").string(), "");
  EXPECT_MENTIONS(classes("flow"), "2 classes (cat, dog)");
  EXPECT_MENTIONS(message("boxes"), "train: has only 'images' and 'labels', which look like parts of a data set");
  // ImageNet, its validation images in one folder; Tiny ImageNet.
  sorted("imagenet/Data/CLS-LOC/train", {"n01440764", "n01443537"});
  images("imagenet/Data/CLS-LOC/val", "ILSVRC2012_val_0000000", 4);
  EXPECT_MENTIONS(message("imagenet"), "imagenet: has only 'Data', with 'train' and 'val' in it; use --data-dir ");
  EXPECT_MENTIONS(file("err"), "imagenet/Data/CLS-LOC\n");
  EXPECT_MENTIONS(message("imagenet/Data/CLS-LOC"),
                  "in folders of classes; sort them into such, or train without them: --data-dir ");
  EXPECT_MENTIONS(classes("imagenet/Data/CLS-LOC/train"), "2 classes (n01440764, n01443537)");
  sorted("tiny/train", {"n01443537", "n01629819"}, "/images"), images("tiny/val/images", "val_", 4);
  EXPECT_MENTIONS(message("tiny"), "tiny/val: has only 'images', which look like parts of a data set");
  EXPECT_MENTIONS(classes("tiny/train"), "2 classes (n01443537, n01629819)");
}

TEST_F(ImageFolderTest, TheFirstLineComesBeforeTheImagesAreRead) {
  pictures("a", {"cat", "dog"}, 1, 2);
  write_file((folder_ / "a/train/cat/30.png").string(), "no image");
  EXPECT_MENTIONS(refused("train --data imagefolder --data-dir a", 1),
                  "30.png: no image (it begins like none of JPEG, PNG");
  EXPECT_MENTIONS(file("out"), concat("; imagefolder from ", (folder_ / "a").string(), "\n"));
  EXPECT_FALSE(fs::exists(folder_ / "runs"));
}

TEST_F(ImageFolderTest, TrainsAResNetUnlessAskedForAnother) {
  pictures("a", {"cat", "dog"}, 1, 2);
  ASSERT_EQ(run("train --data imagefolder --data-dir a --width 1 --epochs 1 --batch-size 2 --val-size 0 --threads 1 "
                "--run one"),
            0)
      << file("err");
  EXPECT_MENTIONS(file("out"), "model  resnet18, ");
  EXPECT_MENTIONS(file("runs/one/config.toml"), "model = \"resnet18\"");
  EXPECT_EQ(result_of("evaluate one")["images"], 4);
  ASSERT_EQ(run("train --train-size 128 --test-size 8 --epochs 1 --run two"), 0) << file("err");
  EXPECT_MENTIONS(file("out"), "model  mlp, ");
  ASSERT_EQ(run("train --config runs/one/config.toml --model mlp --run three"), 0) << file("err");
  EXPECT_MENTIONS(file("out"), "model  mlp, ");
}

TEST_F(ImageFolderTest, PredictSaysTheClassesOfFiles) {
  pictures("a", {"cat", "dog, big"});
  train("--data-dir a --run one");
  const std::vector<double> outputs = logits("one --data-dir a");
  ASSERT_EQ(run("predict one a/test --json"), 0) << file("err");
  std::istringstream lines(file("out"));
  std::string line;
  for (size_t i = 0; i < 24; ++i) {  // in the order of the names, as the data set's
    ASSERT_TRUE(std::getline(lines, line)) << i;
    const Json json = parse_json(line);
    EXPECT_EQ(json["image"], concat("a/test/", i < 12 ? "cat/" : "dog, big/", 10 + i % 12, ".png"));
    const double cat = 1 / (1 + std::exp(outputs[2 * i + 1] - outputs[2 * i]));
    const Json& top = json["top"];
    ASSERT_EQ(top.size(), 2u);
    EXPECT_EQ(top[0]["class"], cat >= 0.5 ? "cat" : "dog, big");
    EXPECT_NEAR(top[0]["probability"].get<double>(), std::max(cat, 1 - cat), 1e-15);
    EXPECT_NEAR(top[1]["probability"].get<double>(), std::min(cat, 1 - cat), 1e-15);
  }
  EXPECT_FALSE(std::getline(lines, line)) << line;

  fs::rename(folder_ / "a", folder_ / "b");  // the data set is not needed, nor the run's folder
  ASSERT_EQ(run("predict runs/one/exported/model.safetensors b/test/cat/10.png b/train/cat/10.png --top 1 --csv"), 0)
      << file("err");
  const std::string table = file("out");
  EXPECT_TRUE(table.starts_with("image,class_1,probability_1\nb/test/cat/10.png,")) << table;
  EXPECT_EQ(std::count(table.begin(), table.end(), '\n'), 3) << table;
  picture("large.png", 0, 1, 1, 40);  // of another size
  ASSERT_EQ(run("predict one large.png"), 0) << file("err");
  EXPECT_MENTIONS(file("out"), "large.png  ");

  write_file((folder_ / "bad.png").string(), "no image");
  EXPECT_EQ(run("predict one large.png bad.png /dev/zero large.png --top 1"), 1);
  const std::string good = file("out"), errors = file("err");
  EXPECT_EQ(std::count(good.begin(), good.end(), '\n'), 2) << good;
  EXPECT_MENTIONS(errors, "warning: bad.png: ");
  EXPECT_MENTIONS(errors, "warning: /dev/zero: not a file");
  EXPECT_MENTIONS(errors, "error: predict: 2 of 4 images cannot be read");
  EXPECT_EQ(run("predict one bad.png"), 1);
  std::string many;  // more than are computed at once
  for (int i = 0; i < 501; ++i) many += i == 3 ? " bad.png" : " large.png";
  EXPECT_EQ(run("predict one --csv" + many), 1);
  const std::string all = file("out"), rows = all.substr(all.find('\n') + 1), row = rows.substr(0, rows.find('\n') + 1);
  std::string expected;
  for (int i = 0; i < 500; ++i) expected += row;
  EXPECT_EQ(rows, expected);
  EXPECT_MENTIONS(refused("predict one nowhere.png", 1), "there is no image and no folder 'nowhere.png'");
  EXPECT_MENTIONS(refused("predict one runs"), "runs: no images in this folder (.jpg");
  EXPECT_MENTIONS(refused("predict one"), "then images or folders");
  EXPECT_MENTIONS(refused("predict one large.png --csv --json"), "--csv: choose it or --json");
  EXPECT_MENTIONS(refused("predict one large.png --top 0"), "--top");
}

}  // namespace
}  // namespace ringtape
