#pragma once
#include <string>
#include <vector>

#include "train/io/json.h"

namespace ringtape {

inline constexpr const char* kReport = "report.html";  // in a run's folder

// Writes a page that shows these runs, a file that needs nothing else. `comparison`: a table of them, {"title": ...,
// "notes": ..., "heads": [...], "rows": [[...]]}; null: none. Throws IoError.
void write_report(const std::string& path, const std::vector<std::string>& runs, const Json& comparison = {});

}  // namespace ringtape
