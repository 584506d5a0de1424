// README.md says what is true: its example compiles and runs, its tables list what there is.
#include <cstdio>
#include <fstream>
#include <regex>
#include <set>

#include "core/env.h"
#include "tests/support.h"
#include "train/options.h"

namespace ringtape {
namespace {

std::string read(const std::string& name) {
  std::ifstream in(std::string(RINGTAPE_SOURCE_DIR) + "/" + name);
  return {std::istreambuf_iterator<char>(in), {}};
}

TEST(Readme, ItsExampleIsTheOneThatRuns) {
  const std::string example = read("tests/readme_example.cpp");
  ASSERT_FALSE(example.empty());
  EXPECT_NE(read("README.md").find("```cpp\n" + example + "```"), std::string::npos);

  FILE* pipe = popen(RINGTAPE_EXAMPLE, "r");
  ASSERT_TRUE(pipe);
  char line[100], last[100] = "";
  while (std::fgets(line, sizeof line, pipe)) std::copy(line, line + sizeof line, last);
  EXPECT_EQ(pclose(pipe), 0);
  double loss = 1;
  ASSERT_EQ(std::sscanf(last, "step 1000  loss %lf", &loss), 1) << last;
  EXPECT_LT(loss, 1e-3);
}

TEST(Readme, ListsEveryEnvironmentVariable) {
  const std::string text = read("README.md");
  for (const env::Variable& v : env::variables())
    EXPECT_NE(text.find(std::string("| `") + v.name + "` | " + v.values + " | " + v.meaning + " |"), std::string::npos) << v.name;
}

TEST(Readme, NamesFilesThatExist) {
  const std::regex link(R"(\]\(([\w./-]+)\))");
  for (const std::string page : {"README.md", "docs/data-parallel.md", "docs/self-supervised.md", "docs/cluster/README.md"}) {
    const std::string text = read(page), folder = page.substr(0, page.rfind('/') + 1);
    for (std::sregex_iterator it(text.begin(), text.end(), link), end; it != end; ++it)
      EXPECT_TRUE(std::ifstream(concat(RINGTAPE_SOURCE_DIR, "/", folder, (*it)[1].str())).good()) << page << ": " << (*it)[1];
  }
}

// Flags in the lines of commands that a page shows.
TEST(Readme, ShowsFlagsThatThereAre) {
  std::set<std::string> known = {"--config", "--nnodes", "--node-rank", "--master-addr", "--master-port", "--max-restarts"};
  for (const char* flag :
       {"--strategies", "--seeds", "--out", "--inference", "--batch-sizes", "--methods", "--gather", "--preset", "--protocol", "--help"})
    known.insert(flag);
  for (const Option& option : train_options()) known.insert(concat("--", option.name));
  const std::string text = read("docs/data-parallel.md") + read("docs/self-supervised.md");
  const std::regex flag(R"(--[a-z][a-z-]*)");
  for (std::sregex_iterator it(text.begin(), text.end(), flag), end; it != end; ++it) EXPECT_TRUE(known.contains(it->str())) << it->str();
}

}  // namespace
}  // namespace ringtape
