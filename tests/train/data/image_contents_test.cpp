// Checksums of images.
#include "train/data/files/image_contents.h"

#include <gtest/gtest.h>

#include <set>

namespace ringtape {
namespace {

TEST(ImageContents, EachByteCountsInAChecksum) {
  std::set<uint32_t> seen;
  for (size_t size = 0; size <= 100; ++size) {
    std::string bytes(size, 'x');
    seen.insert(checksum_of(bytes.data(), size));
    for (char& byte : bytes) {
      byte ^= 1;
      seen.insert(checksum_of(bytes.data(), size));
      byte ^= 1;
    }
  }
  EXPECT_EQ(seen.size(), 101u + 100 * 101 / 2);
}

TEST(ImageContents, AnotherChecksumIsRefused) {
  ImageContents contents(2);
  EXPECT_TRUE(contents.expect(0, 7));
  EXPECT_FALSE(contents.was_read(0));
  EXPECT_FALSE(contents.read(0, 8));
  EXPECT_TRUE(contents.read(0, 7));
  EXPECT_TRUE(contents.was_read(0));
  EXPECT_FALSE(contents.expect(0, 8));
  EXPECT_EQ(contents.of(0), 7u);
  EXPECT_FALSE(contents.of(1));
  EXPECT_EQ(contents.known(), 1);
}

}  // namespace
}  // namespace ringtape
