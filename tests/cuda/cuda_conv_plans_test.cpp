// The file of measured plans: shared by processes, never trusted.
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "core/log.h"
#include "core/text.h"
#include "kernels/cuda/conv/conv_plans.h"
#include "tests/support/support.h"

namespace ringtape {
namespace {

namespace fs = std::filesystem;
using cuda::PlanChoices;

class ConvPlans : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / concat("ringtape_conv_plans_", ::getpid());
    fs::create_directories(folder_);
    path_ = (folder_ / "plans").string();
    set_log_sink([this](const std::string& line) { warnings_.push_back(line); });
  }
  void TearDown() override {
    set_log_sink({});
    fs::remove_all(folder_);
  }
  void put(const std::string& text) { std::ofstream(path_, std::ios::binary) << text; }
  std::string content() const {
    std::ifstream in(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  // It works in memory, with one warning that mentions `part`.
  void expect_given_up(const std::string& path, const std::string& part) {
    SCOPED_TRACE(part);
    warnings_.clear();
    PlanChoices plans(path);
    EXPECT_EQ(plans.find("a"), std::nullopt);
    EXPECT_EQ(plans.keep("a", "engine 1"), "engine 1");
    EXPECT_EQ(plans.find("a"), "engine 1");
    EXPECT_EQ(plans.keep("b", "engine 2"), "engine 2");
    ASSERT_EQ(warnings_.size(), 1u);
    EXPECT_MENTIONS(warnings_[0], part);
    EXPECT_MENTIONS(warnings_[0], path);
    EXPECT_MENTIONS(warnings_[0], "RINGTAPE_CONV_PLANS");
  }

  fs::path folder_;
  std::string path_;
  std::vector<std::string> warnings_;
};

TEST_F(ConvPlans, AreReplacedIfAsked) {
  PlanChoices plans(path_), others(path_);
  EXPECT_EQ(plans.keep("a", "engine 1"), "engine 1");
  EXPECT_EQ(plans.keep("a", "engine 2"), "engine 1");
  plans.replace("a", "engine 2");
  plans.replace("b", "engine 3");
  EXPECT_EQ(plans.find("a"), "engine 2");
  EXPECT_EQ(others.find("a"), "engine 2");
  EXPECT_EQ(others.find("b"), "engine 3");
}

TEST_F(ConvPlans, AreKeptForOtherProcesses) {
  const std::string path = (folder_ / "new" / "folders" / "plans").string();
  PlanChoices plans(path);
  EXPECT_EQ(plans.find("a"), std::nullopt);
  EXPECT_EQ(plans.keep("a", "engine 1 knobs 2=3"), "engine 1 knobs 2=3");
  PlanChoices other(path);
  EXPECT_EQ(other.find("a"), "engine 1 knobs 2=3");
  EXPECT_EQ(other.find("b"), std::nullopt);
  EXPECT_EQ(plans.keep("b", "engine 7 knobs"), "engine 7 knobs");
  EXPECT_EQ(other.keep("b", "engine 8 knobs"), "engine 7 knobs");  // who came first
  EXPECT_EQ(plans.keep("a", "engine 9 knobs"), "engine 1 knobs 2=3");
  EXPECT_TRUE(warnings_.empty());
  EXPECT_EQ(std::distance(fs::directory_iterator(fs::path(path).parent_path()), {}), 1);  // no temporary file
}

TEST_F(ConvPlans, WithoutAFileAreInMemory) {
  PlanChoices plans("");
  EXPECT_EQ(plans.keep("a", "engine 1"), "engine 1");
  EXPECT_EQ(plans.find("a"), "engine 1");
  EXPECT_TRUE(warnings_.empty());
}

TEST_F(ConvPlans, DamagedAndForeignFilesAreLeftAsTheyAre) {
  const std::string first = "ringtape convolution plans 1\n";
  for (const std::string& text :
       {std::string("\\documentclass{thesis}\n"), std::string("ringtape convolution plans 2\n"), first + "a\tengine 1",
        first + "no tab\n", first + "\tengine 1\n", first + "a\t\n", first + "a\tb\tc\n", first + "\n",
        first + std::string("a\0\tengine 1\n", 12), first.substr(0, 12)}) {
    put(text);
    expect_given_up(path_, "damaged");
    EXPECT_EQ(content(), text);
  }
  for (const std::string& text : {std::string(), first}) {
    put(text);
    EXPECT_EQ(PlanChoices(path_).keep("a", "engine 1"), "engine 1");
    EXPECT_EQ(content(), first + "a\tengine 1\n");
  }
}

TEST_F(ConvPlans, FoldersAndFilesThatCannotBeUsedAreNoError) {
  expect_given_up(folder_.string(), "cannot be read");
  put("a file");
  expect_given_up(path_ + "/plans", "cannot be");
}

// The place of /dev/null, or of a link, is not taken by a file.
TEST_F(ConvPlans, WhatIsNoFileStaysThereAndALinkStaysOne) {
  const std::string pipe = (folder_ / "pipe").string(), link = (folder_ / "link").string();
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  expect_given_up(pipe, "cannot be read");
  EXPECT_TRUE(fs::is_fifo(pipe));
  put("");
  fs::create_symlink(path_, link);
  PlanChoices(link).keep("a", "engine 1");
  EXPECT_TRUE(fs::is_symlink(link));
  EXPECT_EQ(PlanChoices(path_).find("a"), "engine 1");
}

TEST_F(ConvPlans, ProcessesThatWriteAtOnceLoseNothing) {
  constexpr int kProcesses = 4, kEach = 25;
  std::vector<pid_t> children;
  for (int p = 0; p < kProcesses; ++p) {
    children.push_back(::fork());
    if (children.back() != 0) continue;
    PlanChoices plans(path_);
    for (int i = 0; i < kEach; ++i) plans.keep(concat(p, ' ', i), concat("engine ", p)), plans.keep("all", concat(p));
    ::_exit(0);
  }
  for (const pid_t child : children) {
    int status = -1;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  PlanChoices plans(path_);
  for (int p = 0; p < kProcesses; ++p)
    for (int i = 0; i < kEach; ++i) EXPECT_EQ(plans.find(concat(p, ' ', i)), concat("engine ", p));
  EXPECT_TRUE(plans.find("all"));
  EXPECT_TRUE(warnings_.empty());
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), {}), 1);
}

}  // namespace
}  // namespace ringtape
