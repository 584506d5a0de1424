#pragma once
#include <functional>

#include "train/compare/finished_run.h"
#include "train/io/json.h"

namespace ringtape {

// Mean and standard deviation (of a sample, with n - 1) over seeds; one seed has no deviation.
struct Spread {
  double mean = 0;
  std::optional<double> deviation;
};
Spread spread_of(const std::vector<double>& values);

// The runs of one strategy, one per seed.
struct ComparedStrategy {
  std::string name;
  int64_t devices = 1;
  std::vector<FinishedRun> runs;

  std::string str() const;                                                        // "ddp on 2 devices"
  std::optional<Spread> spread(std::optional<double> FinishedRun::*value) const;  // empty unless all have it
  Spread spread(double FinishedRun::*value) const;
};

// A column of a table.
struct Column {
  const char *head, *key;  // names in the table (with unit) and in JSON
  std::function<std::optional<Spread>(const ComparedStrategy&)> value;
  int digits;
  double scale;  // factor from the unit in JSON to that in the table
};
template <class Member> std::function<std::optional<Spread>(const ComparedStrategy&)> field(Member member) {
  return [member](const ComparedStrategy& s) -> std::optional<Spread> { return s.spread(member); };
}

// A row of a Markdown table: first words, then values.
struct TableRow {
  std::vector<std::string> words;
  const ComparedStrategy* runs;
  std::vector<Column> columns;  // the same in all rows
};
std::string markdown_table(const std::vector<std::string>& heads, const std::vector<TableRow>& rows);
// Adds seeds, runs and values to an object.
void add_figures(Json& out, const ComparedStrategy& runs, const std::vector<Column>& columns);

// One row per strategy. Speed-up: images/s divided by that of the first strategy.
std::string comparison_table(const std::vector<ComparedStrategy>& strategies);  // Markdown
Json comparison_json(const std::vector<ComparedStrategy>& strategies);

}  // namespace ringtape
