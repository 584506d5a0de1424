// The addresses and the bytes of the emulated GPUs' memory.
#include "emulation/memory.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <set>

#include "emulation/emulation.h"

namespace ringtape::emulation {
namespace {

TEST(Memory, AddressesAreNotUsedAgainSoon) {
  std::set<void*> seen;
  for (int i = 0; i < 100; ++i) {
    void* const p = reserve(1000);
    EXPECT_TRUE(seen.insert(p).second);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(p) % kRedzone, 0u);
    release(p);
  }
}

TEST(Memory, LivesFromAPointToAPoint) {
  auto* const p = static_cast<char*>(reserve(1000));
  EXPECT_TRUE(is_device(p));
  EXPECT_FALSE(inside_live(p, 1));
  make_live(p);
  EXPECT_EQ(p[999], char(kPoison));
  EXPECT_TRUE(inside_live(p, 1000));
  EXPECT_TRUE(inside_live(p + 1000, 0));
  EXPECT_FALSE(inside_live(p + 1, 1000));
  EXPECT_FALSE(inside_live(p + 1001, 0));
  kill(p);
  EXPECT_FALSE(inside_live(p, 1));
  EXPECT_EQ(size_of_buffer(p), 1000u);
  make_live(p);
  EXPECT_TRUE(inside_live(p, 1000));
  release(p);
  EXPECT_FALSE(inside_live(p, 1));
  int local = 0;
  EXPECT_FALSE(is_device(&local));
}

TEST(Memory, KnowsWhatIsInitialised) {
  if (!checked()) GTEST_SKIP() << "checked executables know it";
  auto* const a = static_cast<char*>(reserve(100));
  auto* const b = static_cast<char*>(reserve(100));
  make_live(a);
  make_live(b);
  EXPECT_FALSE(initialised(a, 1));
  mark_initialised(a + 3, 10);
  EXPECT_TRUE(initialised(a + 3, 10));
  EXPECT_FALSE(initialised(a + 2, 1));
  EXPECT_FALSE(initialised(a + 13, 1));
  mark_copied(b + 1, a, 20);
  EXPECT_TRUE(initialised(b + 4, 10));
  EXPECT_FALSE(initialised(b + 3, 1));
  EXPECT_FALSE(initialised(b + 14, 1));
  mark_initialised(b, 100);
  mark_copied(b, a, 100);
  EXPECT_TRUE(initialised(b + 3, 10));
  EXPECT_FALSE(initialised(b + 2, 1));
  EXPECT_FALSE(initialised(b + 99, 1));
  release(a);
  release(b);
}

TEST(Memory, IsFoundAgainWhenAllAddressesHaveBeenUsed) {
  const size_t large = size_t{700} << 20;
  void* const kept = reserve(1000);
  for (int i = 0; i < 20; ++i) {
    void* const p = reserve(large);
    ASSERT_NE(p, nullptr);
    EXPECT_TRUE(p > kept || static_cast<char*>(p) + large <= kept);
    release(p);
  }
  EXPECT_EQ(reserve(size_t{5} << 30), nullptr);
  release(kept);
}

}  // namespace
}  // namespace ringtape::emulation
