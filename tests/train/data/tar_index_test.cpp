// Tar archives: members where they are, samples, and what is refused.
#include "train/data/files/tar_index.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "tests/support/processes.h"
#include "tests/support/support.h"
#include "train/io/file.h"
#include "train/io/process.h"

namespace ringtape {
namespace {

namespace fs = std::filesystem;
using test::message_of;

struct Entry {
  std::string name, content;
  char type = '0';
  int64_t size = -1;  // told; -1: that of the content
  bool ustar = true;
};

std::string octal(int64_t value, int digits) {
  std::string out(size_t(digits), '0');
  for (int i = digits; i-- > 0; value >>= 3) out[size_t(i)] = char('0' + (value & 7));
  return out + '\0';
}

std::string header(const Entry& e) {
  std::string out(512, '\0');
  const auto put = [&](size_t at, const std::string& text) { out.replace(at, text.size(), text); };
  put(0, e.name.substr(0, 100)), put(100, octal(0644, 7)), put(108, octal(0, 7)), put(116, octal(0, 7));
  put(124, octal(e.size >= 0 ? e.size : int64_t(e.content.size()), 11)), put(136, octal(0, 11));
  put(148, std::string(8, ' ')), put(156, {e.type});
  if (e.ustar) put(257, std::string("ustar\0", 6) + "00");
  int64_t sum = 0;
  for (const char c : out) sum += uint8_t(c);
  put(148, octal(sum, 6) + ' ');
  return out;
}
std::string member(const Entry& e) {
  std::string out = header(e) + e.content;
  out.resize((out.size() + 511) / 512 * 512);
  return out;
}
std::string archive(const std::vector<Entry>& entries) {
  std::string out;
  for (const Entry& e : entries) out += member(e);
  return out + std::string(1024, '\0');
}
std::string record(const std::string& key, const std::string& value) {
  const size_t rest = key.size() + value.size() + 3;
  size_t length = rest + 1;
  while (std::to_string(length).size() + rest != length) ++length;
  return concat(length, " ", key, "=", value, "\n");
}

class TarTest : public testing::Test {
 protected:
  std::string write(const std::string& content, const std::string& name = "a.tar") {
    const std::string path = folder_.path() + "/" + name;
    write_file(path, content);
    return path;
  }
  std::string refused(const std::string& content) {
    const std::string path = write(content), message = message_of<FormatError>([&] { index_tar(path); });
    EXPECT_TRUE(message.starts_with(path + ": ")) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    return message;
  }
  std::string refused_samples(const std::vector<Entry>& entries) {
    const TarIndex index = index_tar(write(archive(entries)));
    return message_of<FormatError>([&] { tar_samples(index, "a.tar"); });
  }
  test::TemporaryFolder folder_;
};

TEST_F(TarTest, MembersOfEveryFormatAreFound) {
  const std::string from = folder_.path() + "/from";
  std::map<std::string, std::string> files;
  const auto add = [&](const std::string& name, size_t bytes) {
    std::string content(bytes, '\0');
    for (size_t i = 0; i < bytes; ++i) content[i] = char(i * 7 + name.size());
    fs::create_directories(fs::path(from + "/" + name).parent_path());
    write_file(from + "/" + name, content), files[name] = content;
  };
  add("a/0001.jpg", 700), add("a/0001.cls", 1), add("a/empty", 0), add("b/512", 512), add("b/513", 513);
  for (const std::string format : {"v7", "ustar", "gnu", "pax"}) {
    SCOPED_TRACE(format);
    if (format == "ustar") add(std::string(90, 'd') + "/" + std::string(60, 'n'), 3);  // a prefix
    if (format == "gnu") add(std::string(120, 'd') + "/" + std::string(200, 'n'), 5);
    if (format == "pax") add("\xc3\xa9/1.jpg", 9), fs::create_symlink("0001.jpg", from + "/a/link");
    const std::string path = folder_.path() + "/" + format + ".tar";
    ASSERT_EQ(run_program({"tar", "--format=" + format, "-cf", path, "-C", from, "."}).code, 0);
    const TarIndex index = index_tar(path);
    std::map<std::string, std::string> found;
    InputFile file(path);
    for (const TarMember& m : index.members) found[m.name] = file.read(uint64_t(m.offset), uint64_t(m.size));
    EXPECT_EQ(found, files);
    EXPECT_EQ(index.links, format == "pax" ? 1 : 0);
    EXPECT_EQ(index.others, 0);
  }
}

TEST_F(TarTest, HeadersByHand) {
  const TarIndex index = index_tar(write(archive({{".//./a.jpg", "x"},
                                                  {"old", "yy", '\0', -1, false},
                                                  {"folder/", "", '\0'},
                                                  {"hard", "", '1', 77},  // links have no data, whatever they say
                                                  {"soft", "", '2'},
                                                  {"pipe", "", '6'},
                                                  {"g", record("path", "of all"), 'g'},
                                                  {"x", record("mtime", "1.5") + record("path", "a long name"), 'x'},
                                                  {"short", "zzz"},
                                                  {"L", std::string(300, 'n') + '\0', 'L'},
                                                  {"nnn", "uuuu"},
                                                  {"x", record("size", "2"), 'x'},
                                                  {"sized", "ss", '0', 0}})));
  std::vector<std::string> names;
  for (const TarMember& m : index.members) names.push_back(m.name);
  EXPECT_EQ(names, (std::vector<std::string>{"a.jpg", "old", "a long name", std::string(300, 'n'), "sized"}));
  EXPECT_EQ(index.members[0].offset, 512);
  EXPECT_EQ(index.members[4].size, 2);
  EXPECT_EQ(index.links, 2);
  EXPECT_EQ(index.others, 1);
  Entry large{"large", "x"};
  std::string base = header(large);  // the size in base 256
  base.replace(124, 12, '\x80' + std::string(10, '\0') + '\1');
  int64_t sum = 0;
  base.replace(148, 8, 8, ' ');
  for (const char c : base) sum += uint8_t(c);
  base.replace(148, 8, octal(sum, 6) + ' ');
  EXPECT_EQ(index_tar(write(base + std::string(512, 'x') + std::string(512, '\0'))).members.at(0).size, 1);
  EXPECT_EQ(index_tar(write(std::string(1024, '\0'))).members.size(), 0u);
}

TEST_F(TarTest, WhatCannotBeReadIsRefused) {
  const std::string good = archive({{"a.jpg", std::string(700, 'x')}, {"b.jpg", "y"}});
  for (size_t bytes = 0; bytes + 1024 < good.size() + 512; bytes += 100)
    EXPECT_MENTIONS(refused(good.substr(0, bytes)), "it is cut off") << bytes;
  EXPECT_MENTIONS(refused(archive({{"a", "x", '0', 1 << 30}})), "a member of 1073741824 bytes goes past the end");
  EXPECT_MENTIONS(refused(archive({{"a", "x", '0', (int64_t{1} << 33) - 1}})), "goes past the end");
  std::string changed = good;
  changed[3] ^= 1;
  EXPECT_MENTIONS(refused(changed), "damaged tar archive at byte 0 (no header, or a damaged one)");
  changed = good;
  changed[1536] ^= 1;
  EXPECT_MENTIONS(refused(changed), "at byte 1536 (no header");
  EXPECT_MENTIONS(refused(good + good), "it goes on behind its end marker");
  EXPECT_MENTIONS(refused(archive({{"/etc/passwd", ""}})), "the name '/etc/passwd' leads out of the archive");
  for (const char* name : {"../a", "a/../../b", "a/..", ".."})
    EXPECT_MENTIONS(refused(archive({{name, ""}})), "leads out of the archive");
  EXPECT_NO_THROW(index_tar(write(archive({{"a..b/..c", ""}}))));
  EXPECT_MENTIONS(refused(archive({{"a", ""}, {"b", ""}, {"./a", ""}})), "two members have the name 'a'");
  for (const char* name : {"", ".", "./.", ".//."})
    EXPECT_MENTIONS(refused(archive({{name, ""}})), "a member without a name") << name;
  EXPECT_MENTIONS(refused(archive({{"x", record("path", std::string("a\0b", 3)), 'x'}, {"a", ""}})), "without a name");
  EXPECT_MENTIONS(refused(archive({{"a\nb/../c", ""}})), "leads out");
  EXPECT_MENTIONS(refused(archive({{"s", "", 'S'}})), "s is a sparse file");
  EXPECT_MENTIONS(refused(archive({{"x", record("GNU.sparse.major", "1"), 'x'}, {"s", ""}})), "s is a sparse file");
  for (const char* bad : {"x", "5 a=", "99 a=b\n", "0 a=b\n", "6 ab\n", "7 a=b\n"})
    EXPECT_MENTIONS(refused(archive({{"x", std::string(bad) + "  ", 'x'}, {"a", ""}})), "a damaged pax record") << bad;
  EXPECT_MENTIONS(refused(archive({{"x", record("size", "-1"), 'x'}, {"a", ""}})), "a pax size that is no number");
  EXPECT_MENTIONS(refused(archive({{"x", record("size", "99999999"), 'x'}, {"a", ""}})), "goes past the end");
  EXPECT_MENTIONS(refused(archive({{"L", std::string(70'000, 'n'), 'L'}, {"a", ""}})), "a name or records of 70000");
  EXPECT_THROW(index_tar(folder_.path() + "/absent.tar"), IoError);
  EXPECT_THROW(index_tar(folder_.path()), IoError);
  const std::string path = write(good);
  ASSERT_EQ(run_program({"gzip", "-k", path}).code, 0);
  EXPECT_MENTIONS(message_of<FormatError>([&] { index_tar(path + ".gz"); }), "a.tar.gz: an archive compressed by gzip");
  for (const auto& [bytes, name] : {std::pair{"BZh9", "bzip2"},
                                    {"\xfd"
                                     "7zXZ",
                                     "xz"},
                                    {"\x28\xb5\x2f\xfd", "zstd"}})
    EXPECT_MENTIONS(refused(bytes + good), concat("compressed by ", name));
}

TEST_F(TarTest, SamplesAreGroupedByTheirNames) {
  const TarIndex index = index_tar(write(archive({{"readme", "r"},
                                                  {"a/1.jpg", "i"},
                                                  {"a/1.cls", "7"},
                                                  {"a/1.seg.png", "s"},
                                                  {"a.b/2.json", "j"},
                                                  {"a.b/2.PNG", "i"},
                                                  {"3.txt", "t"},
                                                  {"3.cls", "1"},
                                                  {"4.json", "j"},
                                                  {"4.cls", "2"},
                                                  {"4.webp", "i"},
                                                  {"5.tif", "i"},
                                                  {"a/.hidden", ""}})));
  const TarSamples found = tar_samples(index, "a.tar");
  ASSERT_EQ(found.samples.size(), 4u);
  const auto names = [&](const TarSample& s) {
    return concat(s.key, " ", index.members[size_t(s.image)].name, " ",
                  s.label < 0 ? "none" : index.members[size_t(s.label)].name);
  };
  EXPECT_EQ(names(found.samples[0]), "a/1 a/1.jpg a/1.cls");
  EXPECT_EQ(names(found.samples[1]), "a.b/2 a.b/2.PNG a.b/2.json");
  EXPECT_EQ(names(found.samples[2]), "4 4.webp 4.cls");
  EXPECT_EQ(names(found.samples[3]), "5 5.tif none");
  EXPECT_EQ(found.unused, 5);  // readme, a/1.seg.png, 3.txt, 3.cls, a/.hidden
  EXPECT_EQ(found.dotted, "");
  EXPECT_MENTIONS(refused_samples({{"1.jpg", ""}, {"1.png", ""}}), "a.tar: the sample '1' has two images, '1.jpg' and");
  EXPECT_MENTIONS(refused_samples({{"1.jpg", ""}, {"2.jpg", ""}, {"1.cls", ""}}), "'1' do not stand together");
  EXPECT_MENTIONS(refused_samples({{"1.cls", std::string((1 << 20) + 1, '1')}}), "'1.cls' has 1048577 bytes");
}

// Six samples, in the eyes of who named them.
TEST_F(TarTest, KeysEndAtTheirFirstDot) {
  std::vector<Entry> members;
  for (int i = 0; i < 6; ++i)
    for (const char* end : {".png", ".cls"}) members.push_back({concat("img_0.", i, end), "1"});
  const TarSamples found = tar_samples(index_tar(write(archive(members))), "a.tar");
  EXPECT_EQ(found.samples.size(), 0u);
  EXPECT_EQ(found.unused, 12);
  EXPECT_EQ(found.dotted, "img_0.0.png");
}

TEST_F(TarTest, LabelsAreNumbers) {
  const auto label = [](const char* name, const std::string& content) {
    return tar_label({name, 0, int64_t(content.size())}, content, "a.tar: x");
  };
  EXPECT_EQ(label("1.cls", "7"), 7);
  EXPECT_EQ(label("1.CLS", " 2147483647\n"), 2147483647);
  EXPECT_EQ(label("a/1.json", R"({"width": 5, "label": 12})"), 12);
  for (const char* bad : {"", "-1", "1.5", "cat", "2147483648", "99999999999999999999", "1 2"})
    EXPECT_MENTIONS(message_of<FormatError>([&] { label("1.cls", bad); }), "a.tar: x: no label; expected") << bad;
  for (const char* none : {"{}", R"({"width": 5, "url": "label"})", "[1]", "3"}) EXPECT_EQ(label("1.json", none), -1);
  for (const char* bad :
       {R"({"label": "1"})", R"({"label": -1})", R"({"label": 18446744073709551615})", R"({"label": 1.0})"})
    EXPECT_MENTIONS(message_of<FormatError>([&] { label("1.json", bad); }), "as \"label\"") << bad;
  EXPECT_MENTIONS(message_of<FormatError>([&] { label("1.json", "{"); }), "a.tar: x");
}

}  // namespace
}  // namespace ringtape
