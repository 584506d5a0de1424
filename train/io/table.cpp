#include "train/io/table.h"

#include <algorithm>

#include "core/text.h"
#include "train/io/csv.h"

namespace ringtape {
namespace {

std::string csv_line(const std::vector<std::string>& cells) {
  std::string out;
  for (const std::string& cell : cells) out += concat(&cell == cells.data() ? "" : ",", csv_cell(cell));
  return out + '\n';
}

std::string markdown_line(const std::vector<std::string>& cells) {
  std::string out = "|";
  for (const std::string& cell : cells) out += " " + cell + " |";
  return out + "\n";
}

// The columns that a text of UTF-8 takes.
size_t width_of(const std::string& text) {
  return size_t(std::ranges::count_if(text, [](char c) { return (c & 0xc0) != 0x80; }));
}

std::string plain(const Json& value) {
  if (value.is_null()) return "";
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_list()) return value.text();
  std::string out;
  for (const Json& part : value) out += (out.empty() ? "" : " ") + plain(part);
  return out;
}

using Cells = std::vector<std::pair<std::string, std::string>>;  // by column

Cells cells_of(const Json& object) {
  Cells out;
  for (const auto& [key, value] : object.items()) {
    if (!value.is_object()) {
      out.emplace_back(key, plain(value));
      continue;
    }
    for (const auto& [member, x] : value.items())
      out.emplace_back(member == "mean" ? key : key == "settings" ? member : key + "_" + member, plain(x));
  }
  return out;
}

}  // namespace

std::string Table::markdown() const {
  std::string out = markdown_line(heads) + "|";
  for (size_t i = 0; i < heads.size(); ++i) out += "---|";
  out += "\n";
  for (const auto& row : rows) out += markdown_line(row);
  return out;
}

std::string Table::csv() const {
  std::string out = csv_line(heads);
  for (const auto& row : rows) out += csv_line(row);
  return out;
}

std::string Table::text() const {
  std::vector<size_t> widths;
  for (size_t i = 0; i < heads.size(); ++i) {
    widths.push_back(width_of(heads[i]));
    for (const auto& row : rows) widths[i] = std::max(widths[i], width_of(row[i]));
  }
  std::string out;
  const auto add = [&](const std::vector<std::string>& cells) {
    std::string line;
    for (size_t i = 0; i < cells.size(); ++i) line += cells[i] + std::string(widths[i] - width_of(cells[i]) + 2, ' ');
    out += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  };
  add(heads);
  for (const auto& row : rows) add(row);
  return out;
}

Json Table::json() const {
  Json out{{"heads", heads}, {"rows", Json::list()}};
  for (const auto& row : rows) out["rows"].push_back(Json(row));
  return out;
}

Table flat_table(const Json& objects) {
  Table out;
  std::vector<Cells> all;
  for (const Json& object : objects) {
    all.push_back(cells_of(object));
    for (const auto& [head, text] : all.back())
      if (std::ranges::count(out.heads, head) == 0) out.heads.push_back(head);
  }
  for (const Cells& cells : all) {
    auto& row = out.rows.emplace_back(out.heads.size());
    for (const auto& [head, text] : cells) row[size_t(std::ranges::find(out.heads, head) - out.heads.begin())] = text;
  }
  return out;
}

}  // namespace ringtape
