// Decoded images in a file: when it is made again, by one of several processes, and what a killed one leaves.
#include "train/data/files/image_cache.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <new>
#include <thread>

#include "tests/support/processes.h"
#include "tests/support/support.h"
#include "train/io/file.h"
#include "train/io/look.h"

namespace ringtape {
namespace {

namespace fs = std::filesystem;

class ImageCacheTest : public testing::Test {
 protected:
  // Two images in an archive, 2 x 2.
  ImageCache cached(const std::function<void(uint8_t*)>& fill) const {
    const auto images = std::make_shared<ShardImages>(std::vector<std::string>{archive()});
    images->add(0, "a", 0, 5), images->add(0, "b", 512, 7);
    return ImageCache(images, {2, 2}, folder(), fill);
  }
  // Whether they were decoded, to `value`.
  bool fills(uint8_t value = 7) const {
    bool called = false;
    const ImageCache images = cached([&](uint8_t* to) { called = true, std::fill_n(to, kBytes, value); });
    EXPECT_EQ(test::values(images.pixels()), std::vector<double>(kBytes, value));
    return called;
  }
  void SetUp() override { write_file(archive(), "content"); }
  std::string folder() const { return temporary_.path() + "/cache"; }
  std::string archive() const { return temporary_.path() + "/a.tar"; }
  static constexpr size_t kBytes = 2 * 2 * 2 * 3;
  test::TemporaryFolder temporary_;
};

TEST_F(ImageCacheTest, ChangedContentIsDecodedAgain) {
  EXPECT_TRUE(fills());
  EXPECT_FALSE(fills());
  const auto time = fs::last_write_time(archive());
  struct stat before {
  }, now{};
  ASSERT_EQ(::stat(archive().c_str(), &before), 0);
  do {                                 // clocks of file systems tick every few milliseconds
    write_file(archive(), "CONTENT");  // of the same size
    fs::last_write_time(archive(), time);
    ASSERT_EQ(::stat(archive().c_str(), &now), 0);
  } while (now.st_ctim.tv_sec == before.st_ctim.tv_sec && now.st_ctim.tv_nsec == before.st_ctim.tv_nsec);
  EXPECT_EQ(fs::last_write_time(archive()), time);
  EXPECT_TRUE(fills(8));
  EXPECT_FALSE(fills(8));
}

TEST_F(ImageCacheTest, WhatAKilledProcessLeavesIsRemoved) {
  test::Child child([&] { cached([](uint8_t*) { std::raise(SIGKILL); }); });
  EXPECT_EQ(child.wait(), SIGKILL);
  const auto leftovers = [&] {
    int64_t out = 0;
    for (const std::string& name : names_in(folder())) out += is_temporary_name(name);
    return out;
  };
  EXPECT_EQ(leftovers(), 1);
  const std::string other = temporary_name(folder() + "/images-00000000.bin");
  write_file(other, "of another file, which may be being written");
  EXPECT_TRUE(fills());
  EXPECT_EQ(leftovers(), 1);
  EXPECT_TRUE(is_there(other));
  EXPECT_FALSE(fills());
}

TEST_F(ImageCacheTest, OneOfSeveralProcessesDecodes) {
  constexpr int kProcesses = 4;
  struct Counts {
    std::atomic<int> begun = 0, decoded = 0;
  };
  void* const shared = ::mmap(nullptr, sizeof(Counts), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(shared, MAP_FAILED);
  auto& counts = *new (shared) Counts;
  std::vector<test::Child> children;
  for (int i = 0; i < kProcesses; ++i)
    children.emplace_back([&] {
      ++counts.begun;
      const ImageCache images = cached([&](uint8_t* to) {
        ++counts.decoded;
        while (counts.begun < kProcesses) std::this_thread::yield();
        std::this_thread::sleep_for(std::chrono::milliseconds(100));  // for the others to come, too, if they may
        std::fill_n(to, kBytes, uint8_t{9});
      });
      RT_CHECK(test::values(images.pixels()) == std::vector<double>(kBytes, 9), "other bytes");
    });
  for (test::Child& child : children) EXPECT_EQ(child.wait(), 0);
  EXPECT_EQ(counts.decoded, 1);
  ::munmap(shared, sizeof(Counts));
}

// A folder that only others may write, with a complete file, is enough.
TEST_F(ImageCacheTest, WhatIsNoFileIsNamed) {
  EXPECT_TRUE(fills());
  std::string path;
  for (const auto& entry : fs::directory_iterator(folder()))
    if (entry.path().extension() == ".bin") path = entry.path();
  fs::remove(path);
  const auto refused = [&] { return test::message_of<IoError>([&] { fills(); }); };
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  EXPECT_EQ(refused(), path + ": is not a file; remove it, or choose another --image-cache");
  fs::remove(path);
  fs::create_directory(path);
  EXPECT_EQ(refused(), path + ": is not a file; remove it, or choose another --image-cache");
}

TEST_F(ImageCacheTest, AFileThatIsThereNeedsNoLock) {
  EXPECT_TRUE(fills());
  for (const std::string& name : names_in(folder()))
    if (name.ends_with(".lock")) fs::remove(folder() + "/" + name);
  EXPECT_FALSE(fills());
  EXPECT_EQ(names_in(folder()).size(), 1u);
}

}  // namespace
}  // namespace ringtape
