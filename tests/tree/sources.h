#pragma once
#include <filesystem>
#include <set>
#include <string>

namespace ringtape {

namespace fs = std::filesystem;
inline const fs::path kRoot = RINGTAPE_SOURCE_DIR;

// Calls f(path) for the sources and headers in a folder and those below it.
template <class F>
void for_each_source(const fs::path& folder, F&& f) {
  if (!fs::exists(folder)) return;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    static const std::set<std::string> kinds = {".h", ".cpp", ".cu", ".cuh"};
    if (entry.is_regular_file() && kinds.count(entry.path().extension())) f(entry.path());
  }
}

}  // namespace ringtape
