#include "train/io/csv.h"

#include "core/printable.h"

namespace ringtape {

std::string csv_cell(const std::string& any) {
  const std::string text = printable(any, "\n");
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string out = "\"";
  for (const char c : text) out += c == '"' ? "\"\"" : std::string(1, c);
  return out + '"';
}

}  // namespace ringtape
