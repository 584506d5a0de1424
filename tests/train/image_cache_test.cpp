// Decoded images in a file: when it is made again.
#include "train/data/image_cache.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>

#include "tests/support/processes.h"
#include "tests/support/support.h"
#include "train/io/file.h"

namespace ringtape {
namespace {

namespace fs = std::filesystem;

class ImageCacheTest : public testing::Test {
 protected:
  // Two images in an archive, 2 x 2.
  Tensor cached(const std::function<void(uint8_t*)>& fill) const {
    ShardImages images({archive()});
    images.add(0, "a", 0, 5), images.add(0, "b", 512, 7);
    return cached_images(images, {2, 2}, folder(), fill);
  }
  // Whether they were decoded, to `value`.
  bool fills(uint8_t value = 7) const {
    bool called = false;
    const Tensor images = cached([&](uint8_t* to) { called = true, std::fill_n(to, kBytes, value); });
    EXPECT_EQ(test::values(images), std::vector<double>(kBytes, value));
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
  struct stat before {}, now {};
  ASSERT_EQ(::stat(archive().c_str(), &before), 0);
  do {  // clocks of file systems tick every few milliseconds
    write_file(archive(), "CONTENT");  // of the same size
    fs::last_write_time(archive(), time);
    ASSERT_EQ(::stat(archive().c_str(), &now), 0);
  } while (now.st_ctim.tv_sec == before.st_ctim.tv_sec && now.st_ctim.tv_nsec == before.st_ctim.tv_nsec);
  EXPECT_EQ(fs::last_write_time(archive()), time);
  EXPECT_TRUE(fills(8));
  EXPECT_FALSE(fills(8));
}

}  // namespace
}  // namespace ringtape
