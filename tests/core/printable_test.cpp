// What files bring cannot steer the terminal that it is shown on.
#include "core/printable.h"

#include <gtest/gtest.h>
#include <png.h>

#include "tests/support/cli_command.h"
#include "train/io/safetensors.h"

namespace ringtape {
namespace {

TEST(Printable, ShowsControlsAndKeepsTheRest) {
  EXPECT_EQ(printable("plain text, café €, 漢字 🎈 caf\xe9"), "plain text, café €, 漢字 🎈 caf\xe9");
  EXPECT_EQ(printable("\x1b]0;title\x07\r\t\x7f"), "\\x1b]0;title\\x07\\x0d\\x09\\x7f");
  EXPECT_EQ(printable(std::string("a\0b", 3)), "a\\x00b");
  EXPECT_EQ(printable("\x9b"
                      "31m"),
            "\\x9b31m");  // a lone byte of Latin-1: CSI
  EXPECT_EQ(printable("\xc2\x9b"
                      "31m"),
            "\\u009b31m");                                // the same in UTF-8
  EXPECT_EQ(printable("\xe2\x80\xaetxt"), "\\u202etxt");  // right to left
  EXPECT_EQ(printable("\xe2\x82"), "\xe2\\x82");          // cut off
  EXPECT_EQ(printable("one\ntwo"), "one two");
  EXPECT_EQ(printable("one\ntwo", "\n  "), "one\n  two");
  std::string all;
  for (int i = 0; i < 256; ++i) all += char(i);
  for (const char c : printable(all)) EXPECT_FALSE((c >= 0 && c < 0x20) || c == 0x7f);
}

class Foreign : public CliTest {
 protected:
  static void expect_clean(const std::string& text) {
    for (const char c : text) ASSERT_TRUE(c == '\n' || (c & 0xe0) != 0) << text;
    EXPECT_LACKS(text, "\x7f");
  }
};

TEST_F(Foreign, TensorNamesAndSettingsAreShownAsText) {
  const std::string bad = "\x1b]0;pwned\x07\x1b[2Jx\nringtape: error: forged";
  const std::string file = (folder_ / "a.safetensors").string();
  write_safetensors(file, {{"1.weight", zeros({1, 3072})},
                           {"1.bias", zeros({1})},
                           {"3.weight", zeros({10, 1})},
                           {"3.bias", zeros({10})},
                           {bad, zeros({2})}});
  const std::string with_metadata = (folder_ / "b.safetensors").string();
  write_safetensors(with_metadata, {{"x", Tensor({2}, DType::f32)}}, {{"ringtape.hidden", "8\x1b[2J"}});
  write_file((folder_ / "c.toml").string(), "\"\\u001b[2J\" = 3\n");
  for (const std::string& command :
       {"evaluate --hidden 1 " + file, "train --train-size 100 --test-size 10 --hidden 1 --weights " + file,
        "evaluate " + with_metadata, "train --config " + (folder_ / "c.toml").string()}) {
    const CliResult r = run(command);
    EXPECT_LACKS("\n" + r.err, "\nringtape: error: forged");
    EXPECT_MENTIONS(r.err + r.out, "\\x1b");
    expect_clean(r.err + r.out);
  }
}

TEST_F(Foreign, FolderNamesDoNotReachTheTerminalOrTheLog) {
  const fs::path photos = folder_ / "photos\x1b[2J";
  for (const std::string split : {"train", "test"})
    for (const std::string name : {"cat\x1b[31m", "dog"}) {
      fs::create_directories(photos / split / name);
      for (const std::string image : {"a", "b", "c"}) {
        png_image picture{};
        picture.version = PNG_IMAGE_VERSION, picture.width = picture.height = 4, picture.format = PNG_FORMAT_RGB;
        const std::string pixels(4 * 4 * 3, image[0]), path = (photos / split / name / (image + ".png")).string();
        ASSERT_TRUE(png_image_write_to_file(&picture, path.c_str(), 0, pixels.data(), 0, nullptr));
      }
    }
  const std::string data = "--data-dir '" + photos.string() + "'";
  const CliResult info = run("data info imagefolder " + data);
  ASSERT_EQ(info.code, 0) << info.err;
  EXPECT_MENTIONS(info.out, "cat\\x1b[31m");
  expect_clean(info.out);
  const CliResult training = run(
      "train --data imagefolder --model mlp --hidden 1 --image-size 4 --epochs 1 --batch-size 2 --val-size 1 --run a " +
      data);
  ASSERT_EQ(training.code, 0) << training.err;
  expect_clean(training.out + training.err + read_file((folder_ / "work/runs/a/train.log").string()));
}

}  // namespace
}  // namespace ringtape
