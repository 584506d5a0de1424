// What cannot be read is not taken for what is not there.
#include "train/io/look.h"

#include <dirent.h>
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>

#include "tests/support/support.h"
#include "train/io/file.h"

// Replace the system's functions, for the library under test too.
static int opening_fails = 0, reading_fails = 0;  // errno
extern "C" DIR* opendir(const char* path) {
  static auto* const real = reinterpret_cast<DIR* (*)(const char*)>(::dlsym(RTLD_NEXT, "opendir"));
  return opening_fails ? (errno = opening_fails, nullptr) : real(path);
}
extern "C" dirent* readdir(DIR* folder) {
  static auto* const real = reinterpret_cast<dirent* (*)(DIR*)>(::dlsym(RTLD_NEXT, "readdir"));
  return reading_fails ? (errno = reading_fails, nullptr) : real(folder);
}

namespace ringtape {
namespace {

namespace fs = std::filesystem;
using test::message_of;

class LookTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = (fs::temp_directory_path() / ("ringtape_look_" + std::to_string(::getpid()))).string();
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }
  std::string path(const std::string& name) const { return folder_ + "/" + name; }
  std::string folder_;
};

TEST_F(LookTest, WhatIsNotThereIsNoError) {
  write_file(path("file"), "");
  make_folder(path("folder"));
  fs::create_symlink("folder", path("link"));
  EXPECT_EQ(type_at(path("none")), fs::file_type::not_found);
  EXPECT_EQ(type_at(path("none/below/it")), fs::file_type::not_found);
  EXPECT_EQ(type_at(path("file/below")), fs::file_type::not_found);
  EXPECT_EQ(type_at(path("link/none")), fs::file_type::not_found);
  EXPECT_EQ(type_at(path("file")), fs::file_type::regular);
  EXPECT_EQ(type_at(path("link")), fs::file_type::directory);
  EXPECT_EQ(name_type(path("link")), fs::file_type::symlink);
  EXPECT_TRUE(is_there("/") && is_folder_at("/") && is_folder_at(".") && !is_there("no_such_file"));
  EXPECT_EQ(names_in(path("none")), std::vector<std::string>());
  EXPECT_EQ(names_in(folder_), (std::vector<std::string>{"file", "folder", "link"}));
}

TEST_F(LookTest, ALinkToNothingIs) {
  fs::create_symlink("/nowhere/x", path("link"));
  fs::create_symlink("cycle", path("cycle"));
  for (const char* below : {"link", "link/", "link/a", "link/a/b"}) {
    const std::string told = path("link") + ": is a link to /nowhere/x, which is not there";
    EXPECT_MENTIONS(message_of<IoError>([&] { is_there(path(below)); }), told);
    EXPECT_MENTIONS(message_of<IoError>([&] { names_in(path(below)); }), told);
  }
  EXPECT_EQ(name_type(path("link")), fs::file_type::symlink);
  EXPECT_MENTIONS(message_of<IoError>([&] { is_there(path("cycle/a")); }), "Too many levels of symbolic links");
}

TEST_F(LookTest, AListingFailsAsAWhole) {
  opening_fails = ESTALE;
  EXPECT_MENTIONS(message_of<IoError>([&] { names_in(folder_); }),
                  folder_ + ": cannot read: Stale file handle; start again when it can be read");
  opening_fails = EMFILE;
  EXPECT_MENTIONS(message_of<IoError>([&] { names_in(folder_); }), "(ulimit -n raises it)");
  opening_fails = 0, reading_fails = EIO;
  EXPECT_MENTIONS(message_of<IoError>([&] { names_in(folder_); }), ": cannot read: Input/output error");
  reading_fails = 0;
  write_file(path("file"), "");
  EXPECT_MENTIONS(message_of<IoError>([&] { names_in(path("file")); }), ": cannot read: Not a directory");
}

}  // namespace
}  // namespace ringtape
