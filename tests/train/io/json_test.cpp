// JSON: building, queries, writing and reading.
#include "train/io/json.h"

#include <gtest/gtest.h>

#include <limits>
#include <sstream>

#include "core/check.h"
#include "tests/support/support.h"

namespace ringtape {
namespace {

template <class F> std::string refusal(F&& f) { return test::message_of<FormatError>(f); }

TEST(Json, IsWrittenAsItLooks) {
  const Json value{{"name", "a\"b\n"},
                   {"loss", 0.1},
                   {"whole", 3.0},
                   {"shape", {2, 3}},
                   {"best", nullptr},
                   {"nested", {{"yes", true}, {"n", -1}}},
                   {"largest", std::numeric_limits<uint64_t>::max()}};
  EXPECT_EQ(value.text(),
            R"({"name":"a\"b\n","loss":0.1,"whole":3.0,"shape":[2,3],"best":null,"nested":{"yes":true,"n":-1},)"
            R"("largest":18446744073709551615})");
  EXPECT_EQ(parse_json(value.text()), value);
  EXPECT_EQ(parse_json(value.text(2)), value);
  EXPECT_EQ((Json{{"a", 1}}).text(2), "{\n  \"a\": 1\n}");
}

TEST(Json, AListOfTextsIsNoObject) {
  EXPECT_EQ((Json{"a", "b"}).text(), R"(["a","b"])");
  EXPECT_EQ((Json{{"a", "b"}}).text(), R"({"a":"b"})");
  EXPECT_EQ((Json{{"a", "b", "c"}}).text(), R"([["a","b","c"]])");
  EXPECT_EQ((Json{{"a", 1}, 2}).text(), R"([["a",1],2])");
  EXPECT_EQ(Json::list().text(), "[]");
  EXPECT_EQ(Json::object().text(), "{}");
  EXPECT_EQ(Json().text(), "null");
  EXPECT_EQ(Json(std::vector<int>{1, 2}), (Json{1, 2}));
  EXPECT_EQ(Json(std::vector<bool>{true, false}), (Json{true, false}));
  EXPECT_EQ(Json(std::map<std::string, int>{{"a", 1}}), (Json{{"a", 1}}));
}

TEST(Json, WhatIsNotThereIsMadeWhereItMayBe) {
  Json value;
  value["a"]["b"] = 1;
  value["list"].push_back("x") = "y";
  for (Json& part : value["list"]) part = part.get<std::string>() + "!";
  EXPECT_EQ(value.text(), R"({"a":{"b":1},"list":["y!"]})");
  value.update({{"a", 2}, {"c", 3}});
  value.erase("list"), value.erase("none");
  EXPECT_EQ(value.text(), R"({"a":2,"c":3})");
  const Json& constant = value;
  EXPECT_MENTIONS(refusal([&] { (void)(constant["x"]); }), "an object has no x");
  EXPECT_MENTIONS(refusal([&] { (void)(constant["a"]["x"]); }), "expected an object, got 2");
  EXPECT_MENTIONS(refusal([&] { (void)(value["a"]["x"]); }), "expected an object, got 2");
  EXPECT_MENTIONS(refusal([&] { (void)(value.push_back(1)); }), "expected a list, got an object");
  EXPECT_MENTIONS(refusal([&] { (void)((Json{1, 2})[2]); }), "a list of 2 has no part 2");
  EXPECT_EQ(value.find("x"), nullptr);
  EXPECT_EQ(Json(1).find("x"), nullptr);
  EXPECT_TRUE(Json().empty() && Json::list().empty() && !Json(0).empty());
}

TEST(Json, NothingIsTakenForWhatItIsNot) {
  EXPECT_EQ(Json(3).get<int>(), 3);
  EXPECT_EQ(Json(3).get<double>(), 3.0);
  EXPECT_EQ(Json(uint64_t{1} << 63).get<uint64_t>(), uint64_t{1} << 63);
  EXPECT_EQ((Json{1, 2.5}).get<std::vector<float>>(), (std::vector<float>{1, 2.5}));
  EXPECT_EQ(Json(3), Json(3.0));
  EXPECT_LT(Json(2), Json(2.5));
  EXPECT_NE(Json(1), Json(true));
  EXPECT_NE(Json(1), Json("1"));
  EXPECT_MENTIONS(refusal([&] { (void)(Json(300).get<uint8_t>()); }), "a smaller number, got 300");
  EXPECT_MENTIONS(refusal([&] { (void)(Json(2.5).get<int>()); }), "a whole number, got 2.5");
  EXPECT_MENTIONS(refusal([&] { (void)(Json(uint64_t{1} << 63).get<int64_t>()); }),
                  "a whole number, got 9223372036854775808");
  EXPECT_MENTIONS(refusal([&] { (void)(Json(-1).get<uint64_t>()); }), "a whole number of at least 0, got -1");
  EXPECT_MENTIONS(refusal([&] { (void)(Json("3").get<double>()); }), "a number, got \"3\"");
  EXPECT_MENTIONS(refusal([&] { (void)(Json(0).get<bool>()); }), "true or false, got 0");
  EXPECT_MENTIONS(refusal([&] { (void)(Json(nullptr).get<std::string>()); }), "a string, got null");
  EXPECT_MENTIONS(refusal([&] { (void)(Json("a").parts()); }), "a list, got \"a\"");
}

TEST(Json, BytesThatAreNotUtf8AreReplaced) {
  EXPECT_EQ(Json("caf\xe9").text(), "\"caf\xef\xbf\xbd\"");
  std::ostringstream out;
  out << Json{{"a\xff", 1}};
  EXPECT_EQ(out.str(), "{\"a\xef\xbf\xbd\":1}");
}

TEST(Json, OfTwoMembersOfOneNameTheLastIsRead) {
  EXPECT_EQ(parse_json(R"({"a":1,"b":2,"a":3})").text(), R"({"a":3,"b":2})");
  EXPECT_EQ(parse_json(R"({"b":0,"a":[1],"b":{"b":1,"c":2,"b":[3]},"a":4,"a":5})").text(),
            R"({"b":{"b":[3],"c":2},"a":5})");
}

// A look at all members for each one would take an hour.
TEST(Json, ManyMembersAreReadAndWritten) {
  constexpr int kMembers = 400'000;
  std::string text = "{";
  for (int i = 0; i < kMembers; ++i) text += concat(i > 0 ? "," : "", "\"k", i, "\":", i);
  text += "}";
  const Json read = parse_json(text);
  EXPECT_EQ(read.size(), size_t(kMembers));
  EXPECT_EQ(read["k399999"], Json(399999));
  EXPECT_EQ(read.text(), text);
}

TEST(Json, TooManyValuesAreRefused) {
  std::string many(2 * size_t(kMaxJsonValues) + 3, ',');
  many.front() = '[', many.back() = ']';
  for (size_t i = 1; i < many.size(); i += 2) many[i] = '1';
  EXPECT_MENTIONS(refusal([&] { (void)(parse_json(many, "x")); }), "x: more than 2097152 values");
  many[many.size() - 3] = many[many.size() - 2] = ' ';
  EXPECT_EQ(parse_json(many, "x").size(), size_t(kMaxJsonValues));
}

TEST(Json, WhatIsNotJsonIsRefused) {
  for (const char* text : {"", "{", "[1,]", "nul", "{\"a\":1}}", "\"\xff\"", "1e999", "{} x"})
    EXPECT_MENTIONS(refusal([&] { (void)(parse_json(text, "file.json")); }), "file.json: damaged: not JSON");
  for (const char* behind : {"", " ", "garbage", "}"})
    EXPECT_MENTIONS(refusal([&] { (void)(parse_json(concat("{\"label\": 1}", '\0', behind), "a.json")); }),
                    "a.json: damaged: not JSON");
  EXPECT_EQ(parse_json("[[[]]]", "x", 3).text(), "[[[]]]");
  EXPECT_MENTIONS(refusal([&] { (void)(parse_json("[[[]]]", "x", 2)); }), "x: nested too deep: more than 2 levels");
  EXPECT_MENTIONS(refusal([&] { (void)(parse_json(std::string(100'000, '['), "x")); }),
                  "x: nested too deep: more than 16 levels");
}

}  // namespace
}  // namespace ringtape
