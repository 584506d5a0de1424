#pragma once
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "tests/support/support.h"
#include "train/io/file.h"

namespace ringtape {

namespace fs = std::filesystem;

struct CliResult {
  int code;
  std::string out, err;
};

class CliTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("ringtape_cli_" + std::to_string(::getpid()));
    fs::remove_all(folder_);
    fs::create_directories(folder_ / "work");
  }
  void TearDown() override { fs::remove_all(folder_); }

  // Runs the binary in an empty folder, without environment variables that would change its behaviour.
  CliResult run(const std::string& arguments, const std::string& before = "") {
    const std::string out = (folder_ / "out").string(), err = (folder_ / "err").string();
    const std::string command = "cd " + (folder_ / "work").string() +
                                " && env -u RINGTAPE_DATA_DIR -u RINGTAPE_THREADS -u RINGTAPE_LOG " + before + " " +
                                RINGTAPE_BINARY + " " + arguments + " >" + out + " 2>" + err + " </dev/null";
    const int status = std::system(command.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read_file(out), read_file(err)};
  }

  // It must fail with this code and one line on standard error that mentions `part`, and must not have
  // written anything.
  void expect_error(const std::string& arguments, int code, const std::string& part, const std::string& before = "") {
    const CliResult r = run(arguments, before);
    EXPECT_EQ(r.code, code) << arguments << "\n" << r.err;
    EXPECT_TRUE(r.err.starts_with("ringtape: error: ")) << arguments << "\n" << r.err;
    EXPECT_EQ(std::count(r.err.begin(), r.err.end(), '\n'), 1) << arguments << "\n" << r.err;
    EXPECT_MENTIONS(r.err, part) << arguments;
    EXPECT_EQ(r.out, "") << arguments;
    EXPECT_TRUE(fs::is_empty(folder_ / "work")) << arguments << " has written something";
  }

  std::string write_idx_set(bool broken) {
    const auto idx = [](std::vector<unsigned char> head, size_t n, char value) {
      return std::string(head.begin(), head.end()) + std::string(n, value);
    };
    const fs::path data = folder_ / "idx";
    fs::create_directories(data);
    for (const std::string split : {"train", "t10k"}) {
      write_file((data / (split + "-images-idx3-ubyte")).string(),
                 idx({0, 0, 8, 3, 0, 0, 0, 20, 0, 0, 0, 2, 0, 0, 0, 2}, 80, 100));
      write_file((data / (split + "-labels-idx1-ubyte")).string(), idx({0, 0, 8, 1, 0, 0, 0, 20}, 20, broken ? 11 : 3));
    }
    return data.string();
  }

  fs::path folder_;
};

}  // namespace ringtape
