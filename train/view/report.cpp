#include "train/view/report.h"

#include "core/check.h"
#include "train/io/file.h"
#include "train/view/page.h"
#include "train/view/run_list.h"

namespace ringtape {

// Replaces the only occurrence of a text.
static void put(std::string& out, std::string_view what, std::string_view by) {
  const size_t at = out.find(what);
  RT_CHECK_AS(Error, at != std::string::npos, "the page has no ", what);
  out.replace(at, what.size(), by);
}

std::string page_with(const std::string& json) {
  std::string out(page()), data;
  data.reserve(json.size());
  for (const char c : json)  // "</script>" in a text would end the data, "<!--" would change how they are read
    if (c == '<') data += "\\u003c";
    else data += c;
  put(out, R"(<meta name="ringtape-source" content="api">)", R"(<meta name="ringtape-source" content="embedded">)");
  put(out, "<!-- data -->", concat(R"(<script type="application/json" id="ringtape-data">)", data, "</script>"));
  return out;
}

void write_report(const std::string& path, const std::vector<std::string>& runs, const Json& comparison) {
  write_file(path, page_with(RunList(runs).everything(comparison)));
}

}  // namespace ringtape
