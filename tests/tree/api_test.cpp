// docs/api.md lists the public headers: all that examples and pages include, each of which compiles alone, and those
// that Doxygen reads.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "autograd/op.h"
#include "core/check.h"
#include "tests/tree/sources.h"

namespace ringtape {
namespace {

TEST(Api, PublicHeadersCompileAlone) {
  const std::vector<std::string> headers = public_headers();
  EXPECT_GT(headers.size(), 80u);
  for (const std::string& header : headers) {
    EXPECT_TRUE(fs::exists(kRoot / header)) << header;
    const std::string source = header.substr(0, header.size() - 1) + "cpp";  // without one: tests/CMakeLists.txt
    if (!fs::exists(kRoot / source)) continue;
    EXPECT_EQ(found(text_of(source), "(?:^|\n)#include [<\"]([^>\"]+)").front(), header)
        << source << " includes its own header first";
  }
}

using Names = std::set<std::string>;

// This header and those that it includes.
void add_included(const std::string& header, Names& headers) {
  if (!fs::exists(kRoot / header) || !headers.insert(header).second) return;
  for (const std::string& other : found(text_of(header), "\n#include \"([^\"]+)\"")) add_included(other, headers);
}

// The types that a header declares directly in namespace ringtape.
Names types_in(const std::string& header) {
  static const std::regex type(R"(^(?:template <.*> )?(?:struct|class|enum class|enum|using) (\w+))");
  std::istringstream in(text_of(header));
  std::string space;
  Names names;
  for (std::string line; std::getline(in, line);) {
    std::smatch match;
    if (line.starts_with("namespace ")) space = line;
    if (line.starts_with("}  // namespace")) space = line.ends_with(" ringtape") ? "" : "namespace ringtape {";
    if (space == "namespace ringtape {" && std::regex_search(line, match, type)) names.insert(match[1]);
  }
  return names;
}

// A type of a header that is not public takes a name from every program that says `using namespace ringtape;`.
TEST(Api, NamesTheTypesThatComeAlong) {
  Names reached;
  const std::vector<std::string> headers = public_headers();
  for (const std::string& header : headers) add_included(header, reached);
  EXPECT_GT(reached.size(), headers.size() + 20);
  Names along, known;
  for (const std::string& header : headers) known.merge(types_in(header));
  for (const std::string& header : reached)
    if (std::ranges::find(headers, header) == headers.end()) along.merge(types_in(header));
  std::erase_if(along, [&](const std::string& name) { return name.ends_with("Options") || known.contains(name); });
  EXPECT_TRUE(known.contains("Tensor") && known.contains("Batch") && along.contains("Storage"));
  const std::string text = text_of("docs/api.md");
  const std::vector<std::string> listed = found(text.substr(text.find("## Types that come along")), "`(\\w+)`[,.]");
  EXPECT_EQ(along, Names(listed.begin(), listed.end()));
}

TEST(Api, DoxygenReadsThePublicHeaders) {
  const std::string text = text_of("docs/Doxyfile"), input = text.substr(text.find("\nINPUT "));
  EXPECT_EQ(found(input.substr(0, input.find("\nUSE_")), "([\\w/]+\\.h)\\b"), public_headers());
}

// Most operations are rows of tables, which Doxygen gets written out.
TEST(Api, DoxygenReadsEveryOperation) {
  if (std::system("command -v python3 >/dev/null") != 0) GTEST_SKIP() << "there is no python3";
  FILE* const out = ::popen(
      concat("python3 '", kRoot.string(), "/docs/doxygen_comments.py' '", kRoot.string(), "/autograd/ops.h'").c_str(),
      "r");
  ASSERT_TRUE(out);
  std::string text;
  for (char block[4096]; std::fgets(block, sizeof block, out);) text += block;
  EXPECT_EQ(::pclose(out), 0);
  const std::vector<std::string> functions = found(text, "\n *[\\w:<>, ]+ (\\w+)\\(");
  const std::set<std::string> known(functions.begin(), functions.end());
  const std::string header = text_of("autograd/ops.h");
  for (const Op& op : ops())
    EXPECT_TRUE(known.contains(op.name) || header.find(concat(" ", op.name, "(")) == header.npos) << op.name;
  for (const char* of_a_table : {"relu", "exp", "add", "pow", "leaky_relu", "bitwise_and", "equal", "floor"})
    EXPECT_TRUE(known.contains(of_a_table)) << of_a_table;
}

TEST(Api, ExamplesIncludePublicHeadersOnly) {
  const std::vector<std::string> all = public_headers();
  const std::set<std::string> known(all.begin(), all.end());
  int includes = 0;
  const auto check = [&](const fs::path& file) {
    for (const std::string& header : found(text_of(file), "\n#include [<\"](?:ringtape/)?(\\w+/[^>\"]+\\.h)[>\"]")) {
      ++includes;
      const bool of_a_kernel = header == "kernels/cpu/elementwise.h";
      EXPECT_TRUE(of_a_kernel || known.contains(header) || header.starts_with("sys/"))
          << file << " includes " << header;
    }
  };
  for_each_source(kRoot / "docs/examples", check);
  for (const std::string& page : pages())
    if (page != "CONTRIBUTING.md") check(page);  // who works on ringtape itself may include all
  EXPECT_GT(includes, 30);
}

}  // namespace
}  // namespace ringtape
