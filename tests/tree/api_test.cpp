// docs/api.md lists the public headers: all that examples and pages include, each of which compiles alone, and those
// that Doxygen reads.
#include <regex>
#include <string>
#include <vector>

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
