#pragma once
#include <string>
#include <vector>

namespace ringtape {

inline constexpr const char* kReport = "report.html";  // in a run's folder

// Writes a page that shows these runs, a file that needs nothing else. Throws IoError.
void write_report(const std::string& path, const std::vector<std::string>& runs);

}  // namespace ringtape
