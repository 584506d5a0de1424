// Commands that go on from a run on a user's images: what it knows of them, and what it needs.
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/support/image_folders.h"
#include "train/io/json.h"
#include "train/io/safetensors.h"

namespace ringtape {
namespace {

namespace fs = std::filesystem;

class FromARunTest : public test::ImageFolders {};

// Pretraining, a test of its features, training with few labels, features of other images; each finds by itself which
// network it is and where the images are.
TEST_F(FromARunTest, EachCommandGoesOnFromARun) {
  for (int i = 0; i < 12; ++i) picture(concat("flat/", i, ".png"), i % 2, i, 1, 12);
  pictures("few", {"cat", "dog"}, 1, 5);
  const std::string flat = "--data imagefolder --data-dir flat", few = "--data imagefolder --data-dir few";
  const std::string pretrain = concat(
      "pretrain --method moco --bn-splits 1 --queue 8 --image-size 8 --width 2 "
      "--batch-size 4 --epochs 1 --warmup-epochs 0 --threads 1 ",
      flat);
  ASSERT_EQ(run(concat(pretrain, " --knn-data imagefolder --knn-dir few --knn-k 3 --run first")), 0) << file("err");
  ASSERT_EQ(run("evaluate first --protocol knn --json"), 0) << file("err");  // as the run was tested
  EXPECT_EQ(parse_json(file("out"))["images"], 10);
  EXPECT_EQ(parse_json(file("out"))["k"], 3);
  const std::string train = concat("train --epochs 2 --threads 1 --val-size 0 ", few);
  ASSERT_EQ(run(concat(train, " --weights first --freeze backbone --batch-size 64 --run probe")), 0) << file("err");
  EXPECT_MENTIONS(file("err"), "--batch-size 64: all 10 training images are one batch");
  EXPECT_MENTIONS(file("out"), "images of 8x8x3");
  EXPECT_MENTIONS(file("runs/probe/exported/README.md"),
                  "; those of files are the result of Resize(8), CenterCrop(8).");
  EXPECT_MENTIONS(file("runs/probe/exported/README.md"), "`ringtape evaluate model.safetensors --data-dir DIR`");
  // The same command goes on; a network of another width is refused.
  ASSERT_EQ(run(concat(train, " --weights first --freeze backbone --batch-size 64 --run probe --resume --epochs 3")), 0)
      << file("err");
  EXPECT_MENTIONS(refused(concat(train, " --weights probe --run probe --resume --epochs 4")), "/probe began with ");
  // Its checkpoints have all weights.
  fs::rename(folder_ / "runs/first", folder_ / "runs/elsewhere");
  ASSERT_EQ(run(concat(train, " --weights first --freeze backbone --batch-size 64 --run probe --resume --epochs 4")), 0)
      << file("err");
  EXPECT_MENTIONS(file("runs/probe/config.toml"), "/runs/first/exported/backbone.safetensors\"");
  fs::rename(folder_ / "runs/elsewhere", folder_ / "runs/first");
  EXPECT_MENTIONS(refused(concat(train, " --weights first --width 4"), 1), "--width and --stem choose that");
  EXPECT_MENTIONS(refused(concat(train, " --weights second"), 1), "/second: cannot open");

  // Of a network with classes only the backbone begins another pretraining; a step of no length keeps it, and what
  // follows it slowly, as it was.
  ASSERT_EQ(run(concat(pretrain, " --weights probe --lr 0 --weight-decay 0 --run second")), 0) << file("err");
  ASSERT_EQ(run("export probe --backbone --out probe.safetensors"), 0) << file("err");
  const Safetensors before = read_safetensors((folder_ / "probe.safetensors").string()),
                    after = read_safetensors((folder_ / "runs/second/exported/backbone.safetensors").string()),
                    state = read_safetensors((folder_ / "runs/second/checkpoints/last/model.safetensors").string());
  for (const NamedTensor& t : before.tensors) {
    if (!t.name.ends_with("weight")) continue;
    EXPECT_TRUE(test::same_bytes(after[t.name], t.tensor)) << t.name;
    test::expect_close(state["teacher.backbone." + t.name], t.tensor, 1e-6, 0, t.name);  // an average of equals rounds
  }

  ASSERT_EQ(run(concat("embed probe --data-dir flat --image-size 8 --out flat.csv")), 0) << file("err");
  const std::string table = file("flat.csv");
  EXPECT_TRUE(table.starts_with("file,f0,f1,")) << table;
  EXPECT_MENTIONS(table, "\n0.png,");
  EXPECT_EQ(std::count(table.begin(), table.end(), '\n'), 13);
  EXPECT_EQ(std::count(table.begin(), table.end(), ','), 13 * 16);
  ASSERT_EQ(run("embed probe --out few.csv"), 0) << file("err");
  EXPECT_MENTIONS(file("few.csv"), "\ndog/14.png,dog,");
  EXPECT_EQ(result_of("data info imagefolder --data-dir flat")["train"].find("per_class"), nullptr);
}

// A run knows what its images were.
TEST_F(FromARunTest, ARunIsExportedWithoutItsImages) {
  pictures("few", {"cat", "dog"}, 1, 5);
  const std::string train =
      "train --data imagefolder --data-dir few --epochs 1 --threads 1 --val-size 0 --batch-size 5";
  ASSERT_EQ(run(train + " --image-size 8 --width 2 --run one"), 0) << file("err");
  ASSERT_EQ(run("export one --out before.safetensors"), 0) << file("err");
  ASSERT_EQ(run("export one --out before.onnx"), 0) << file("err");
  pictures("few", {"newt"}, 1, 5);
  ASSERT_EQ(run("export one --out more.safetensors"), 0) << file("err");
  fs::rename(folder_ / "few", folder_ / "elsewhere");
  ASSERT_EQ(run("export one --out after.safetensors"), 0) << file("err");
  ASSERT_EQ(run("export runs/one/checkpoints/last --out after.onnx"), 0) << file("err");
  for (const char* name : {"more.safetensors", "after.safetensors"}) EXPECT_EQ(file(name), file("before.safetensors"));
  EXPECT_EQ(file("after.onnx"), file("before.onnx"));
  EXPECT_MENTIONS(file("after.md"), "`ringtape evaluate after.safetensors --data-dir DIR`");
  EXPECT_MENTIONS(file("after.md"),
                  "Resize(8), CenterCrop(8).\n\nClasses, in the order of the outputs: [\"cat\",\"dog\"]");
  EXPECT_MENTIONS(refused("export one --data-dir few --out other.onnx", 1), "no folder");
  ASSERT_EQ(run("export one --data-dir elsewhere --backbone --out other.onnx"), 0) << file("err");
}

}  // namespace
}  // namespace ringtape
