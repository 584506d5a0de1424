#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace ringtape {

namespace fs = std::filesystem;
inline const fs::path kRoot = RINGTAPE_SOURCE_DIR;

// A file's text; its path is relative to the root, or absolute.
inline std::string text_of(const fs::path& file) {
  std::ifstream in(kRoot / file);
  EXPECT_TRUE(in) << file;
  return {std::istreambuf_iterator<char>(in), {}};
}

// The characters of a line in UTF-8.
inline auto columns(const std::string& line) {
  return std::count_if(line.begin(), line.end(), [](char c) { return (c & 0xc0) != 0x80; });
}

// Calls f(path) for the sources and headers in a folder and those below it.
template <class F> void for_each_source(const fs::path& folder, F&& f) {
  if (!fs::exists(folder)) return;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    static const std::set<std::string> kinds = {".h", ".cpp", ".cu", ".cuh"};
    if (entry.is_regular_file() && kinds.count(entry.path().extension())) f(entry.path());
  }
}

// Every page: of the root and of docs/, by its path from the root, in order.
inline std::set<std::string> pages() {
  std::set<std::string> out;
  const auto add = [&](const fs::path& path) {
    if (path.extension() == ".md") out.insert(fs::relative(path, kRoot).string());
  };
  for (const auto& entry : fs::directory_iterator(kRoot)) add(entry.path());
  for (const auto& entry : fs::recursive_directory_iterator(kRoot / "docs")) add(entry.path());
  return out;
}

// The first groups of all matches, in order.
inline std::vector<std::string> found(const std::string& text, const char* pattern) {
  std::vector<std::string> out;
  const std::regex expression(pattern);
  for (std::sregex_iterator it(text.begin(), text.end(), expression), end; it != end; ++it) out.push_back((*it)[1]);
  return out;
}

// The headers of docs/api.md, in its order.
inline std::vector<std::string> public_headers() {
  std::istringstream in(text_of("docs/api.md"));
  std::string rows;
  for (std::string line; std::getline(in, line);)
    if (line.starts_with("| `")) rows += line + '\n';
  return found(rows, "`([\\w/]+\\.h)`");
}

}  // namespace ringtape
