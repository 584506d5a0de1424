// docs/api.md lists the public headers: all that examples and pages include, each of which compiles alone, and those
// that Doxygen reads.
#include <cstdio>
#include <cstdlib>
#include <regex>
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
