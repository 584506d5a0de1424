// CONTRIBUTING.md says which files a new thing touches: its examples are in these, and in no others.
#include <regex>
#include <set>

#include "tests/support/support.h"
#include "tests/tree/sources.h"

namespace ringtape {
namespace {

// "dcl" may be Dcl, DCL or dcl_loss, "stem-padding" stem_padding.
std::regex any_spelling(std::string name) {
  for (char& c : name)
    if (c == '-') c = '.';
  std::string spelling;
  for (const char c : name) spelling += c == '.' || c == '_' ? "[-_]?" : concat("[", char(std::toupper(c)), c, "]");
  return std::regex("(^|[^A-Za-z])" + spelling + "([^a-z]|$)");
}

std::string squeezed(std::string text) {  // lower-case, without what may stand between words
  std::erase_if(text, [](char c) { return c == '-' || c == '_'; });
  for (char& c : text) c = char(std::tolower(c));
  return text;
}

std::set<std::string> files_with(const std::string& name) {
  static const auto texts = [] {  // path, text, squeezed text, which is searched faster
    std::vector<std::array<std::string, 3>> all;
    for (const char* folder : {"core", "kernels", "autograd", "comm", "nn", "train"})
      for (const auto& entry : fs::recursive_directory_iterator(kRoot / folder))
        if (entry.is_regular_file()) {
          const std::string text = text_of(entry.path());
          all.push_back({fs::relative(entry.path(), kRoot).string(), text, squeezed(text)});
        }
    return all;
  }();
  const std::regex pattern = any_spelling(name);
  const std::string plain = squeezed(name);
  std::set<std::string> out;
  for (const auto& [path, text, fast] : texts)
    if (fast.find(plain) != std::string::npos && std::regex_search(text, pattern)) out.insert(path);
  return out;
}

// Words that mean nothing else, so that no other file may have them.
const std::set<std::string> kUnmistakable = {"nnclr",        "dcl",     "muon",   "bn-splits",
                                             "stem-padding", "rest-lr", "doctor", "shard-within"};

TEST(Contributing, ThingsTakeTheFilesThatItSays) {
  const std::string page = text_of("CONTRIBUTING.md");
  const std::regex row(R"(\| ([^|]+) \| ([^|]+) \| `([\w-]+)` \|)"), file(R"(`([\w/.]+)`)");
  std::set<std::string> unseen = kUnmistakable;
  int rows = 0;
  for (std::sregex_iterator it(page.begin(), page.end(), row), end; it != end; ++it, ++rows) {
    const std::string thing = (*it)[1], files = (*it)[2], example = (*it)[3];
    SCOPED_TRACE(thing);
    const std::set<std::string> there = files_with(example);
    std::set<std::string> said;
    for (std::sregex_iterator f(files.begin(), files.end(), file); f != end; ++f) {
      const std::string path = (*f)[1];
      const size_t name = path.find("NAME");
      if (name == std::string::npos) said.insert(path);
      else if (!thing.starts_with("a setting")) said.insert(path.substr(0, name) + example + path.substr(name + 4));
      else  // in the files of what it is a setting of
        for (const std::string& owner : there)
          if (owner.starts_with(path.substr(0, name)) && owner.ends_with(path.substr(name + 4))) said.insert(owner);
    }
    for (const std::string& path : said) EXPECT_TRUE(there.contains(path)) << path << " has no " << example;
    if (unseen.erase(example) == 0) continue;
    EXPECT_EQ(there, said) << example;
  }
  EXPECT_EQ(unseen, std::set<std::string>());
  EXPECT_GE(rows, 18);
}

TEST(Contributing, WhatCanBeFoundIsThere) {
  const std::string page = text_of("CONTRIBUTING.md") + text_of("docs/reading.md");
  const std::regex row(R"(\| [^|]+ \| `([\w/.]+)` \| `([^`]*[^`\w-][^`]*)` \|)");
  int found = 0;
  for (std::sregex_iterator it(page.begin(), page.end(), row), end; it != end; ++it, ++found)
    EXPECT_NE(text_of((*it)[1].str()).find((*it)[2].str()), std::string::npos) << it->str();
  EXPECT_GE(found, 60);
}

}  // namespace
}  // namespace ringtape
