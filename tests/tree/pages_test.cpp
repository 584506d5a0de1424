// The C++ of the pages is true: each block is compiled (tests/tree/pages.cmake), and each program prints what the page
// shows below it.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "kernels/kernel.h"
#include "tests/support/support.h"
#include "tests/tree/sources.h"

namespace ringtape {
namespace {

struct Block {
  std::string kind, text;  // "cpp"; its lines
  std::string above;       // the page before it
};

std::vector<Block> blocks_of(const std::string& page) {
  std::vector<Block> out;
  std::istringstream in(text_of(page));
  std::string read;
  bool inside = false;
  for (std::string line; std::getline(in, line); read += line + '\n') {
    const size_t at = line.find_first_not_of(' ');
    const bool fence = at != std::string::npos && line.compare(at, 3, "```") == 0;
    if (fence && !inside) out.push_back({line.substr(at + 3), "", read});
    else if (inside && !fence) out.back().text += line + '\n';
    inside ^= fence;
  }
  EXPECT_FALSE(inside) << page << ": a block without an end";
  return out;
}

bool is_cpp(const Block& block) { return std::regex_match(block.kind, std::regex("cpp|c\\+\\+|cc|cxx|C\\+\\+")); }
bool is_program(const Block& block) { return is_cpp(block) && block.text.find("int main(") != std::string::npos; }

// The n-th C++ block's source or program, as tests/tree/pages.cmake names it.
fs::path built(const std::string& page, int n) {
  std::string name = page.substr(0, page.size() - std::string(".md").size());
  std::replace(name.begin(), name.end(), '/', '-');
  return fs::path(RINGTAPE_PAGES) / concat(name, '-', n);
}

TEST(Pages, EveryBlockOfCppIsCompiled) {
  int programs = 0, fragments = 0, exempt = 0;
  for (const std::string& page : pages()) {
    int n = 0;
    for (const Block& block : blocks_of(page)) {
      if (!is_cpp(block)) continue;
      const fs::path source = built(page, ++n).string() + ".cpp";
      const bool compiled = fs::exists(source) && text_of(source).find(block.text) != std::string::npos;
      const std::string comment = block.above.substr(std::min(block.above.rfind("<!-- "), block.above.size()));
      const bool reason = std::regex_match(comment, std::regex("<!-- not compiled: [^<>]+ -->\n"));
      EXPECT_NE(compiled, reason) << page << ": block " << n << " of C++ must be ```cpp and have main(), or a comment "
                                  << "directly above it (tests/tree/pages.cmake)";
      ++(reason ? exempt : is_program(block) ? programs : fragments);
    }
  }
  EXPECT_GE(programs, 2);
  EXPECT_GE(fragments, 1);
  EXPECT_LE(exempt, 1) << "a block that is not compiled is not known to be right";
}

struct Ran {
  int code;
  std::string out;
};
Ran run(const std::string& command) {
  FILE* pipe = ::popen(concat("env -u RINGTAPE_CPU_ISA -u RINGTAPE_THREADS ", command, " 2>&1").c_str(), "r");
  Ran ran{-1, ""};
  if (!pipe) return ran;
  char line[200];
  while (std::fgets(line, sizeof line, pipe)) ran.out += line;
  const int status = ::pclose(pipe);
  ran.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return ran;
}

// The lines in an order that does not depend on which rank was first.
std::string sorted(const std::string& text) {
  std::istringstream in(text);
  std::multiset<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.insert(line);
  std::string out;
  for (const std::string& line : lines) out += line + '\n';
  return out;
}

// Whether a text is what is shown, where "..." stands for any text.
bool is_shown(const std::string& text, const std::string& shown) {
  const std::string dots = "...";
  size_t at = 0;
  for (size_t begin = 0;;) {
    const size_t end = shown.find(dots, begin);
    const std::string part = shown.substr(begin, end - begin);
    const size_t found = begin == 0 ? (text.starts_with(part) ? 0 : std::string::npos) : text.find(part, at);
    if (end == std::string::npos) return begin == 0 ? text == part : text.substr(at).ends_with(part);
    if (found == std::string::npos) return false;
    at = found + part.size();
    begin = end + dots.size();
  }
}

TEST(Pages, DotsStandForAnyText) {
  EXPECT_TRUE(is_shown("a\nb\nc\n", "a\nb\nc\n"));
  EXPECT_TRUE(is_shown("a\nb\nc\n", "a...c\n"));
  EXPECT_TRUE(is_shown("a\nb\nc\n", "...b...\n"));
  EXPECT_FALSE(is_shown("a\nb\nc\n", "a\nb\n"));
  EXPECT_FALSE(is_shown("a\nb\nc\n", "b...\n"));
  EXPECT_FALSE(is_shown("a\nb\nc\n", "a...b\n"));
  EXPECT_FALSE(is_shown("a\nb\nc\n", "a...d...c\n"));
  EXPECT_FALSE(is_shown("ab", "ab...b"));
}

// What the commands of a block print, which it shows below each: "$ ringtape launch -n 2 -- ./program". `program` is
// what they call ./NAME.
void expect_session(const std::string& shown, const fs::path& program, const fs::path& folder) {
  const std::regex name("\\./(\\w+)");
  std::istringstream in(shown);
  std::string line, command;
  std::getline(in, command);
  while (command.starts_with("$ ")) {
    std::string expected, next;
    while (std::getline(in, line) && !line.starts_with("$ ")) expected += line + '\n';
    next = in ? line : "";
    command.erase(0, 2);
    for (std::sregex_iterator it(command.begin(), command.end(), name), end; it != end; ++it)
      if (!fs::exists(folder / (*it)[1].str())) fs::create_symlink(program, folder / (*it)[1].str());
    const std::string path = concat("PATH='", fs::path(RINGTAPE_BINARY).parent_path().string(), "':\"$PATH\"");
    const Ran ran = run(concat("-C '", folder.string(), "' ", path, " sh -c '", command, "'"));
    EXPECT_EQ(ran.code, 0) << command << '\n' << ran.out;
    const bool ranks = command.find("launch ") != std::string::npos;
    EXPECT_TRUE(ranks ? sorted(ran.out) == sorted(expected) : is_shown(ran.out, expected)) << "$ " << command << '\n'
                                                                                           << ran.out << "shown:\n"
                                                                                           << expected;
    command = next;
  }
}

// A page with programs. They run in their order in one folder, so that one can go on with the files of another.
class Page : public testing::TestWithParam<std::string> {
 protected:
  Page() {
    std::string pattern = (fs::temp_directory_path() / "ringtape-page-XXXXXX").string();
    folder = ::mkdtemp(pattern.data());
  }
  ~Page() override { fs::remove_all(folder); }
  fs::path folder;
};

TEST_P(Page, ProgramsPrintWhatItShows) {
  int n = 0;
  fs::path program;
  for (const Block& block : blocks_of(GetParam())) {
    if (is_cpp(block)) {
      ++n;
      if (is_program(block)) {
        EXPECT_TRUE(program.empty()) << program << ": what it prints is not shown below it";
        program = built(GetParam(), n);
      }
    } else if (block.text.starts_with("$ ")) {
      if (n > 0) expect_session(block.text, built(GetParam(), n), folder);
      program.clear();
    } else if (!program.empty() && block.kind.empty()) {
      for (const CpuIsa isa : cpu_isas())
        for (int threads = 1; threads <= 3; ++threads) {
          const std::string setting = concat("RINGTAPE_CPU_ISA=", isa, " RINGTAPE_THREADS=", threads, " ");
          const Ran ran = run(setting + program.string());
          EXPECT_EQ(ran.code, 0) << setting << program;
          EXPECT_TRUE(is_shown(ran.out, block.text)) << setting << program << '\n'
                                                     << ran.out << "shown:\n"
                                                     << block.text;
        }
      program.clear();
    }
  }
  EXPECT_TRUE(program.empty()) << program << ": what it prints is not shown below it";
}

std::vector<std::string> pages_with_programs() {
  std::vector<std::string> out;
  for (const std::string& page : pages())
    for (const Block& block : blocks_of(page))
      if (is_program(block) && (out.empty() || out.back() != page)) out.push_back(page);
  return out;
}
INSTANTIATE_TEST_SUITE_P(, Page, testing::ValuesIn(pages_with_programs()),
                         [](const auto& page) { return std::regex_replace(page.param, std::regex("\\W"), "_"); });

}  // namespace
}  // namespace ringtape
