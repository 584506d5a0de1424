#pragma once
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "train/io/file.h"

namespace ringtape::test {

namespace fs = std::filesystem;

// Runs `ringtape compare` in its own folder; the output is in r/ there.
class CompareCommand : public testing::Test {
 protected:
  // `flags`: for all calls.
  CompareCommand(const std::string& binary, const std::string& flags) : command_(binary + " compare " + flags) {}
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("ringtape_compare_" + std::to_string(::getpid()));
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  // Returns the exit code; the output is in `out` and `err`. `before`: commands of the shell that starts it.
  int run(const std::string& flags, const std::string& before = "") {
    const std::string line = "cd " + folder_.string() + " && echo $$ >pid && " + before +
                             " exec env -u RINGTAPE_THREADS -u RINGTAPE_DATA_DIR " + command_ + " " + flags +
                             " >out 2>err </dev/null";
    const int status = std::system(line.c_str());
    out = read_file((folder_ / "out").string()), err = read_file((folder_ / "err").string());
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  void expect_error(const std::string& flags, int code, const std::string& part) {
    EXPECT_EQ(run(flags), code) << flags;
    EXPECT_NE(err.find(part), std::string::npos) << flags << "\n" << err;
    EXPECT_EQ(std::count(err.begin(), err.end(), '\n'), 1) << err;
  }
  std::string file(const std::string& name) const { return read_file((folder_ / "r" / name).string()); }

  const std::string command_;
  fs::path folder_;
  std::string out, err;
};

}  // namespace ringtape::test
