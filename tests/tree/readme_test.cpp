// README.md and the pages of docs/ say what is true: their tables list what there is, their links lead somewhere.
#include <algorithm>
#include <regex>
#include <set>
#include <sstream>

#include "core/env.h"
#include "tests/support/support.h"
#include "tests/tree/sources.h"
#include "train/settings/options.h"

namespace ringtape {
namespace {

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
                           "--gather", "--preset", "--vary", "--protocol", "--help", "--help-all"})
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
