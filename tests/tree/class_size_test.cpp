// A class is small, in however many files it is.
#include <map>
#include <optional>

#include "tests/tree/sources.h"

namespace ringtape {
namespace {

constexpr int kMaxLines = 250, kMaxFunctions = 30;

// Of the functions that are defined outside of their class, or take several lines in it.
struct ClassSize {
  int lines = 0, functions = 0;
  bool fits() const { return lines <= kMaxLines && functions <= kMaxFunctions; }
  bool operator==(const ClassSize&) const = default;
};
using ClassSizes = std::map<std::string, ClassSize>;  // by folder::name

// The larger ones. Their numbers may only shrink.
const ClassSizes kLarger = {
    {"comm/job::Membership", {256, 24}},
    {"comm/launch::Attempt", {323, 31}},
    {"comm/parallel::ShardedBuffers", {268, 26}},
    {"train/io::Json", {145, 35}},
};

// The lines of a definition that begins at `first`: to the line `close`, or to one that closes all its braces. 0 of a
// declaration.
int lines_of_definition(const std::vector<std::string>& lines, size_t first, const std::string& close) {
  std::ptrdiff_t depth = 0;
  for (size_t i = first; i < lines.size(); ++i) {
    const std::string& line = lines[i];
    depth += std::ranges::count(line, '{') - std::ranges::count(line, '}');
    if (depth == 0 && line.ends_with(';')) return 0;
    if (line == close || (depth == 0 && line.ends_with('}'))) return int(i - first) + 1;
  }
  return 0;
}

void measure(const fs::path& file, ClassSizes& classes, ClassSizes& functions) {
  static const std::regex opens(R"(^(?:class|struct) (?:alignas\(\w+\) )?(\w+)[^;]*\{$)");
  static const std::regex outside(R"((?:^|[ *&])(\w+)::(?:\w+::)*(?:~?\w+|operator\S*)$)");
  const std::string folder = fs::relative(file.parent_path(), kRoot).string() + "::";
  std::vector<std::string> lines;
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  std::optional<std::string> in_class;
  for (size_t i = 0; i < lines.size(); ++i) {
    const std::string &line = lines[i], before = line.substr(0, line.find('('));
    std::smatch m;
    if (line == "};") in_class.reset();
    if (std::regex_match(line, m, opens)) classes.try_emplace(*(in_class = folder + m[1].str()));
    if (before == line || line.find_first_not_of(' ') != (in_class ? 2 : 0)) continue;
    std::optional<std::string> name = in_class;
    if (!in_class && std::regex_search(before, m, outside)) name = folder + m[1].str();
    if (!name || before.find("//") != std::string::npos) continue;
    const int n = lines_of_definition(lines, i, in_class ? "  }" : "}");
    if (n > (in_class ? 1 : 0)) functions[*name].lines += n, ++functions[*name].functions;
    i += size_t(std::max(n - 1, 0));
  }
}

TEST(ClassSize, ClassesAreSmallOrShrink) {
  ClassSizes classes, functions;
  for (const char* folder : {"core", "kernels", "autograd", "comm", "nn", "train"})
    for_each_source(kRoot / folder, [&](const fs::path& file) { measure(file, classes, functions); });
  EXPECT_GT(classes.size(), 700u);
  EXPECT_GT(functions["train/loop::Step"].functions, 15);
  for (const auto& [name, size] : functions) {
    const auto known = kLarger.find(name);
    if (!classes.contains(name) || (known == kLarger.end() && size.fits())) continue;
    ASSERT_TRUE(known != kLarger.end()) << name << " has " << size.lines << " lines in " << size.functions
                                        << " functions, of at most " << kMaxLines << " and " << kMaxFunctions
                                        << ": give a part of it a class of its own";
    EXPECT_TRUE(size == known->second && !size.fits())
        << name << " has " << size.lines << " lines in " << size.functions << " functions, here " << known->second.lines
        << " and " << known->second.functions << ": it may only shrink, and its row with it";
  }
  for (const auto& [name, size] : kLarger) EXPECT_TRUE(classes.contains(name)) << name << " is gone: delete its row";
}

}  // namespace
}  // namespace ringtape
