// README.md and the pages of docs/ say what is true: their examples compile and run, their tables list what there is.
#include <sys/wait.h>

#include <algorithm>
#include <cstdio>
#include <regex>
#include <set>
#include <sstream>

#include "core/env.h"
#include "kernels/kernel.h"
#include "tests/support/support.h"
#include "tests/tree/sources.h"
#include "train/settings/options.h"

namespace ringtape {
namespace {

// Every page: of the root and of docs/, by its path from the root.
std::vector<std::string> pages() {
  std::vector<std::string> out;
  const auto add = [&](const fs::path& path) {
    if (path.extension() == ".md") out.push_back(fs::relative(path, kRoot).string());
  };
  for (const auto& entry : fs::directory_iterator(kRoot)) add(entry.path());
  for (const auto& entry : fs::recursive_directory_iterator(kRoot / "docs")) add(entry.path());
  return out;
}

// What a page shows after a program: the next block of text.
std::string output_of(const std::string& page, const std::string& program) {
  const std::string text = text_of(page), block = concat("```cpp\n", text_of(program), "```");
  const size_t at = text.find(block), begin = text.find("```\n", at == std::string::npos ? at : at + block.size());
  EXPECT_NE(begin, std::string::npos) << page << " does not show " << program << " and what it prints";
  if (begin == std::string::npos) return "";
  return text.substr(begin + 4, text.find("```", begin + 4) - begin - 4);
}

struct Ran {
  int code;
  std::string out;
};
Ran run(const std::string& command) {
  FILE* pipe = popen(concat("env -u RINGTAPE_CPU_ISA -u RINGTAPE_THREADS ", command, " 2>&1").c_str(), "r");
  Ran ran{-1, ""};
  if (!pipe) return ran;
  char line[200];
  while (std::fgets(line, sizeof line, pipe)) ran.out += line;
  const int status = pclose(pipe);
  ran.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return ran;
}

TEST(Readme, ItsExamplePrintsWhatItShows) {
  const std::string shown = output_of("README.md", "tests/tree/readme_example.cpp");
  EXPECT_TRUE(shown.starts_with("step    0  loss ")) << shown;
  for (const CpuIsa isa : cpu_isas())
    for (int threads = 1; threads <= 3; ++threads) {
      const std::string setting = concat("RINGTAPE_CPU_ISA=", isa, " RINGTAPE_THREADS=", threads, " ");
      EXPECT_EQ(run(setting + README_EXAMPLE).out, shown) << setting;
    }
}

std::multiset<std::string> lines_of(const std::string& text) {
  std::istringstream in(text);
  std::multiset<std::string> out;
  for (std::string line; std::getline(in, line);) out.insert(line);
  return out;
}

TEST(Readme, ItsRanksMeet) {
  const std::string shown = output_of("docs/data-parallel.md", "tests/tree/readme_ranks.cpp"),
                    lines = shown.substr(shown.find('\n') + 1);
  const Ran alone = run(README_RANKS);
  EXPECT_EQ(alone.code, 2) << alone.out;
  EXPECT_MENTIONS(alone.out, "ringtape launch -n 2 -- ");
  const Ran two = run(concat(RINGTAPE_BINARY, " launch -n 2 -- ", README_RANKS));
  EXPECT_EQ(two.code, 0) << two.out;
  EXPECT_EQ(lines_of(two.out), lines_of(lines));
}

TEST(Readme, ListsEveryEnvironmentVariable) {
  const std::string text = text_of("docs/reference.md");
  for (const env::Variable& v : env::variables())
    EXPECT_NE(text.find(std::string("| `") + v.name + "` | " + v.values + " | " + v.meaning + " |"), std::string::npos)
        << v.name;
}

TEST(Readme, NamesFilesThatExist) {
  const std::regex link(R"(\]\(([\w./-]+)\))");
  for (const std::string& page : pages()) {
    const std::string text = text_of(page), folder = page.substr(0, page.rfind('/') + 1);
    for (std::sregex_iterator it(text.begin(), text.end(), link), end; it != end; ++it)
      EXPECT_TRUE(fs::exists(kRoot / folder / (*it)[1].str())) << page << ": " << (*it)[1];
  }
}

// Flags in the lines of commands that a page shows.
TEST(Readme, ShowsFlagsThatThereAre) {
  std::set<std::string> known = {"--config",      "--nnodes",      "--node-rank",
                                 "--master-addr", "--master-port", "--max-restarts"};
  for (const char* flag : {"--strategies", "--seeds", "--out", "--inference", "--memory", "--batch-sizes", "--methods",
                           "--gather", "--preset", "--protocol", "--help", "--help-all"})
    known.insert(flag);
  for (const Option& option : train_options()) known.insert(concat("--", option.name));
  const std::string text = text_of("docs/data-parallel.md") + text_of("docs/self-supervised.md");
  const std::regex flag(R"(--[a-z][a-z-]*)");
  for (std::sregex_iterator it(text.begin(), text.end(), flag), end; it != end; ++it)
    EXPECT_TRUE(known.contains(it->str())) << it->str();
}

TEST(Pages, LinesAreShort) {
  for (const std::string& page : pages()) {
    std::istringstream in(text_of(page));
    bool code = false;
    int n = 0;
    for (std::string line; std::getline(in, line);) {
      ++n;
      std::string_view text = line;
      text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
      if (text.starts_with("```")) code = !code;
      if (code || text.starts_with("|") || text.find("http") != std::string_view::npos) continue;
      EXPECT_LE(columns(line), 100) << page << ':' << n;
    }
    if (page == "README.md") {
      EXPECT_LE(n, 120) << page;
    }
  }
}

}  // namespace
}  // namespace ringtape
