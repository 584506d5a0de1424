#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <set>

#include "core/log.h"
#include "core/printable.h"
#include "core/registry.h"
#include "train/cli/common.h"
#include "train/io/look.h"
#include "train/io/table.h"
#include "train/run/time_text.h"
#include "train/view/run_list.h"

namespace ringtape::cli {
namespace {

// A cell: as it is shown, as CSV has it, and what it is sorted by if it is a number.
struct Cell {
  std::string shown, plain;
  std::optional<double> number = {};
};
Cell word(const std::string& text) { return {printable(text), text}; }
Cell number(std::optional<double> x, std::string shown) {
  return x ? Cell{std::move(shown), Json(*x).text(), x} : Cell{};
}

struct RunColumn {
  std::string head;
  bool highest_first;
  std::vector<Cell> cells = {};  // by run

  bool is_empty() const {
    return std::ranges::all_of(cells, [](const Cell& c) { return c.plain.empty(); });
  }
};

std::optional<double> number_at(const Json& run, const char* key) {
  const Json* const value = run.find(key);
  return value && value->is_number() ? std::optional(value->get<double>()) : std::nullopt;
}

std::optional<double> result(const Json& run, const char* split, const char* key) {
  const Json* const found = run["results"].find(split);
  return found ? number_at(*found, key) : std::nullopt;
}

std::string state_of(const Json& run) {
  const auto state = run["state"].get<std::string>();
  return run["config"].empty() ? "damaged" : state == "failed" ? "unfinished" : state;
}

Cell date_of(const Json& run) {
  const std::optional<double> started = number_at(run, "started");
  const auto time = std::time_t(started.value_or(0));
  std::tm local{};
  char text[32] = "";
  if (started && ::localtime_r(&time, &local)) std::strftime(text, sizeof text, "%Y-%m-%d %H:%M", &local);
  return {text, text, started};
}

Cell epochs_of(const Json& run) {
  const auto epoch = run["epoch"].get<int64_t>();
  const std::optional<double> all = number_at(run, "epochs");
  return {concat(epoch, all ? concat("/", int64_t(*all)) : ""), std::to_string(epoch), double(epoch)};
}

Cell accuracy(const Json& run, const char* split) {
  const std::optional<double> x = result(run, split, "top1");
  return number(x, percent(x.value_or(0)));
}

// Without labels there is no loss of the test.
Cell loss_of(const Json& run) {
  const bool with_labels = run["method"] == Json("");
  const std::optional<double> x = result(run, with_labels ? "test" : "train", "loss");
  return number(x, fmt::format("{:.4f}", x.value_or(0)));
}

Cell setting(const Json* value) {
  if (!value) return {"-", ""};
  if (value->is_number()) return {value->text(), value->text(), value->get<double>()};
  return word(value->is_string() ? value->get<std::string>() : value->text());
}

// The settings in which those runs differ that have them, in the order of config.toml.
std::vector<std::string> differing(const std::vector<Json>& runs) {
  std::vector<std::string> names, out;
  for (const Json& run : runs)
    for (const auto& [name, value] : run["config"].items())
      if (name != "data-dir" && std::ranges::count(names, name) == 0) names.push_back(name);
  for (const std::string& name : names) {
    std::set<std::string> texts;
    for (const Json& run : runs)
      if (const Json* const value = run["config"].find(name)) texts.insert(value->text());
    if (texts.size() > 1) out.push_back(name);
  }
  return out;
}

std::vector<RunColumn> columns_of(const std::vector<Json>& runs, const std::string& root) {
  std::vector<RunColumn> out;
  const auto add = [&](const std::string& head, bool highest_first, const auto& cell) {
    RunColumn& column = out.emplace_back(RunColumn{head, highest_first});
    for (const Json& run : runs) column.cells.push_back(cell(run));
  };
  add("name", false, [&](const Json& run) {
    const auto id = run["id"].get<std::string>();
    return word(id.starts_with(root + "/") ? id.substr(root.size() + 1) : id);
  });
  add("date", true, date_of);
  add("state", false, [](const Json& run) { return word(state_of(run)); });
  add("epoch", true, epochs_of);
  add("loss", false, loss_of);
  add("top-1", true, [](const Json& run) { return accuracy(run, "test"); });
  add("validation", true, [](const Json& run) { return accuracy(run, "val"); });
  add("knn", true, [](const Json& run) { return accuracy(run, "knn"); });
  add("time", false, [](const Json& run) {
    const std::optional<double> x = number_at(run, "seconds");
    return number(x, x.value_or(0) < 60 ? fmt::format("{:.1f} s", x.value_or(0)) : duration_text(*x));
  });
  std::erase_if(out, [](const RunColumn& c) { return c.is_empty(); });
  for (const std::string& name : differing(runs))
    add(name, false, [&](const Json& run) { return setting(run["config"].find(name)); });
  return out;
}

// Whether a cell comes before another one; those without a value are last.
bool before(const Cell& a, const Cell& b, bool highest_first) {
  if (a.plain.empty() || b.plain.empty()) return !a.plain.empty() && b.plain.empty();
  if (a.number && b.number) return highest_first ? *a.number > *b.number : *a.number < *b.number;
  return a.number.has_value() != b.number.has_value() ? a.number.has_value() : a.plain < b.plain;
}

// The runs in their new order.
std::vector<size_t> order_of(const std::vector<RunColumn>& columns, const Invocation& invocation) {
  std::vector<size_t> out(columns[0].cells.size());
  for (size_t i = 0; i < out.size(); ++i) out[i] = i;
  if (const std::string* const sort = invocation.flag("sort")) {
    std::vector<std::string> heads;
    for (const RunColumn& c : columns) heads.push_back(c.head);
    check_known("column", *sort, heads, "--sort: ");
    const RunColumn& by = *std::ranges::find(columns, *sort, &RunColumn::head);
    std::ranges::stable_sort(out,
                             [&](size_t a, size_t b) { return before(by.cells[a], by.cells[b], by.highest_first); });
  }
  if (invocation.has("reverse")) std::ranges::reverse(out);
  return out;
}

int run_runs(const Invocation& invocation) {
  const std::string root = invocation.positionals.empty() ? "runs" : invocation.positionals[0];
  const std::string folder = root.substr(0, std::max<size_t>(root.find_last_not_of('/') + 1, 1));
  const bool csv = invocation.has("csv"), none = invocation.positionals.empty() && !is_folder_at(folder);
  const std::vector<Json> runs = none ? std::vector<Json>() : RunList({folder}).all();
  if (runs.empty()) {
    log_info(folder, ": there are no runs; `ringtape train` makes one in the folder runs");
    return 0;
  }
  if (runs.size() == RunList::kMaxRuns) log_warn("only ", RunList::kMaxRuns, " runs are shown");
  const std::vector<RunColumn> columns = columns_of(runs, folder);
  Table table;
  for (const RunColumn& c : columns) table.heads.push_back(c.head);
  for (const size_t run : order_of(columns, invocation)) {
    auto& row = table.rows.emplace_back();
    for (const RunColumn& c : columns) row.push_back(csv ? c.cells[run].plain : c.cells[run].shown);
  }
  std::fputs((csv ? table.csv() : table.text()).c_str(), stdout);
  return 0;
}

}  // namespace

Command runs_command() {
  Command command;
  command.name = "runs";
  command.summary = "Lists runs with their results and the settings in which they differ, newest first.";
  command.usage = "[FOLDER] [FLAGS]";
  command.examples = {"runs                            # those in the folder runs", "runs --sort top-1",
                      "runs runs/compare-lr-mlp-mnist --sort lr --csv"};
  command.positionals = 1;
  command.flags = {
      {"Output", "sort", "COLUMN",
       "sort by this column, also by a setting; the highest accuracy first, the lowest loss", "date, newest first"},
      {"Output", "reverse", "", "the other way round", ""},
      {"Output", "csv", "", "comma-separated values: accuracies as fractions, times in seconds", ""}};
  command.run = run_runs;
  return command;
}

}  // namespace ringtape::cli
