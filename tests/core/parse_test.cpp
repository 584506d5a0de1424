// Numbers and lists in texts.
#include "core/parse.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>

namespace ringtape {
namespace {

TEST(Parse, ANumberIsAllOfTheText) {
  EXPECT_EQ(parse_number<int>("-12"), -12);
  EXPECT_EQ(parse_number<double>("2.5e-1"), 0.25);
  EXPECT_EQ(parse_number<int64_t>("9223372036854775807"), std::numeric_limits<int64_t>::max());
  for (const char* text : {"", " 1", "1 ", "+1", "1,2", "0x1", "9223372036854775808", "1.0"})
    EXPECT_FALSE(parse_number<int64_t>(text)) << text;
  EXPECT_FALSE(parse_number<unsigned>("-1"));
}

TEST(Parse, ANumberIsWithinItsLimits) {
  EXPECT_EQ(parse_number("3", 3, 5), 3);
  EXPECT_EQ(parse_number("5", 3, 5), 5);
  for (const char* text : {"2", "6", "three"}) EXPECT_FALSE(parse_number(text, 3, 5)) << text;
  EXPECT_FALSE(parse_number("nan", 0.0, 1.0));
}

TEST(Parse, BytesHaveAUnit) {
  EXPECT_EQ(parse_bytes("512"), size_t{512});
  EXPECT_EQ(parse_bytes("16K"), size_t{16} << 10);
  EXPECT_EQ(parse_bytes("64M"), size_t{64} << 20);
  EXPECT_EQ(parse_bytes("17179869183G"), size_t{17179869183} << 30);
  for (const char* text : {"", "K", "1k", "1KB", "1 K", "-1", "K1", "1.5M", "17179869184G"})
    EXPECT_FALSE(parse_bytes(text)) << text;
}

TEST(Parse, AListHasWords) {
  using Words = std::vector<std::string>;
  EXPECT_EQ(split_text("a,bc"), (Words{"a", "bc"}));
  EXPECT_EQ(split_text("a,,b,"), (Words{"a", "", "b", ""}));
  EXPECT_EQ(split_text(""), (Words{""}));
  EXPECT_EQ(split_text("a,b;c", ';'), (Words{"a,b", "c"}));
}

}  // namespace
}  // namespace ringtape
