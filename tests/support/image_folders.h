#pragma once
#include <gtest/gtest.h>
#include <png.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/support/support.h"
#include "train/io/file.h"
#include "train/io/json.h"

// Folders of images, and runs of the ringtape binary beside them.
namespace ringtape::test {

class ImageFolders : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / ("ringtape_images_" + std::to_string(::getpid()));
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  // An 8 x 8 image that shows the class and the number.
  void picture(const std::string& name, int kind, int number, double light = 1, int side = 8) const {
    const std::filesystem::path to = folder_ / name;
    std::filesystem::create_directories(to.parent_path());
    std::vector<uint8_t> rgb;
    for (int y = 0; y < side; ++y)
      for (int x = 0; x < side; ++x)
        for (int c = 0; c < 3; ++c)
          rgb.push_back(uint8_t(light * ((40 + 90 * kind + 7 * number + 5 * (kind ? x : y) + 20 * c) % 256)));
    png_image image{};
    image.version = PNG_IMAGE_VERSION;
    image.width = image.height = unsigned(side), image.format = PNG_FORMAT_RGB;
    ASSERT_TRUE(png_image_write_to_file(&image, to.c_str(), 0, rgb.data(), 0, nullptr));
  }
  // Writes train/ and test/ with these classes; the training images may be darker.
  void pictures(const std::string& root, const std::vector<std::string>& classes, double light = 1,
                int count = 12) const {
    for (size_t kind = 0; kind < classes.size(); ++kind)
      for (int i = 0; i < count; ++i) {
        picture(concat(root, "/train/", classes[kind], "/", 10 + i, ".png"), int(kind), i, light);
        picture(concat(root, "/test/", classes[kind], "/", 10 + i, ".png"), int(kind), i + 1);
      }
  }
  int run(const std::string& arguments) const {
    const int status = std::system(
        concat("cd ", folder_.string(), " && ", RINGTAPE_BINARY, " ", arguments, " >out 2>err </dev/null").c_str());
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  std::string file(const std::string& name) const { return read_file((folder_ / name).string()); }
  Json result_of(const std::string& arguments) const {
    EXPECT_EQ(run(arguments + " --json"), 0) << file("err");
    return parse_json(file("out"));
  }
  std::string refused(const std::string& arguments, int code = 2) const {
    EXPECT_EQ(run(arguments), code) << arguments << "\n" << file("out");
    const std::string error = file("err");
    EXPECT_EQ(std::count(error.begin(), error.end(), '\n'), 1) << error;
    return error;
  }
  void train(const std::string& more) const {
    ASSERT_EQ(run("train --data imagefolder --model mlp --hidden 8 --batch-size 8 --epochs 2 --threads 1 " + more), 0)
        << file("err");
  }
  std::filesystem::path folder_;
};

}  // namespace ringtape::test
