// docs/pytorch.md: every name of ringtape's in it exists, and every operation is there.
#include <cstdio>
#include <regex>
#include <set>
#include <sstream>
#include <string>

#include "autograd/op.h"
#include "tests/support/support.h"
#include "tests/tree/sources.h"

namespace ringtape {
namespace {

std::set<std::string> words(const std::string& text, const char* pattern) {
  std::set<std::string> out;
  const std::regex word(pattern);
  for (std::sregex_iterator it(text.begin(), text.end(), word), end; it != end; ++it) out.insert(it->str());
  return out;
}
const char* const kName = "[A-Za-z_]\\w+";  // letters alone are of the examples

std::string printed(const std::string& arguments) {
  std::string out;
  FILE* pipe = ::popen(concat(RINGTAPE_BINARY, " ", arguments).c_str(), "r");
  char line[200];
  while (std::fgets(line, sizeof line, pipe)) out += line;
  EXPECT_EQ(::pclose(pipe), 0) << arguments;
  return out;
}

// What public headers declare, without comments, and what `ringtape list` has.
std::set<std::string> known_names() {
  std::string text = printed("list");
  for (const std::string& header : public_headers())
    text += std::regex_replace(text_of(header), std::regex("//.*"), "");
  return words(text, kName);
}

std::set<std::string> known_flags() {
  std::string text;
  for (const char* command : {"train", "pretrain"}) text += printed(concat(command, " --help-all"));
  return words(text, "--[a-z][a-z-]*");
}

TEST(PytorchPage, NamesExist) {
  const std::set<std::string> names = known_names(), flags = known_flags();
  std::istringstream page(text_of("docs/pytorch.md"));
  const std::regex row("\\| .* \\| (.*) \\|"), code("`([^`]+)`"), quoted("\"[^\"]*\"");
  int rows = 0;
  for (std::string line; std::getline(page, line);) {
    std::smatch cells;
    if (!std::regex_match(line, cells, row)) continue;
    ++rows;
    const std::string right = cells[1];
    for (std::sregex_iterator it(right.begin(), right.end(), code), end; it != end; ++it) {
      std::string text = std::regex_replace((*it)[1].str(), quoted, "");
      if (text.starts_with("torchrun ") || line.starts_with("| not there ")) continue;
      if (text.starts_with("ringtape ")) {
        printed(text.substr(std::string("ringtape ").size()) + " --help");
        continue;
      }
      for (const std::string& flag : words(text, "--[a-z][a-z-]*")) EXPECT_TRUE(flags.contains(flag)) << line;
      text = std::regex_replace(text, std::regex("--[a-z][a-z-]*"), "");
      for (const std::string& name : words(text, kName))
        EXPECT_TRUE(names.contains(name)) << "there is no " << name << ": " << line;
    }
  }
  EXPECT_GT(rows, 80);
}

TEST(PytorchPage, HasEveryOperation) {
  const std::set<std::string> names = words(text_of("docs/pytorch.md"), kName);
  const std::set<std::string> of_data_parallel = words(text_of("comm/parallel/data_parallel.cpp"), kName);
  for (const Op& op : ops()) EXPECT_TRUE(names.contains(op.name) || of_data_parallel.contains(op.name)) << op.name;
}

}  // namespace
}  // namespace ringtape
