#pragma once
#include <functional>

#include "train/compare/finished_run.h"
#include "train/io/json.h"
#include "train/io/table.h"

namespace ringtape {

// Mean and standard deviation (of a sample, with n - 1) over seeds; one seed has no deviation.
struct Spread {
  double mean = 0;
  std::optional<double> deviation;
};
Spread spread_of(const std::vector<double>& values);

// One value of each setting that varies, as text by name.
using Combination = std::vector<std::pair<std::string, std::string>>;

std::string settings_text(const Combination& settings);  // "lr 0.001, hidden 32"

// The runs of one strategy, and of one combination of settings, one per seed.
struct ComparedStrategy {
  std::string name;
  int64_t devices = 1;
  std::vector<FinishedRun> runs;
  Combination settings = {};

  std::string str() const;                                                        // "lr 0.001, ddp on 2 devices"
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

Column batch_column();  // images per step

// A row: the settings that vary, words, then values.
struct TableRow {
  std::vector<std::string> words;
  const ComparedStrategy* runs;
  std::vector<Column> columns;  // the same in all rows
};
Table table_of(const std::vector<std::string>& heads, const std::vector<TableRow>& rows);
// Adds settings, seeds, runs and values to an object.
void add_figures(Json& out, const ComparedStrategy& runs, const std::vector<Column>& columns);

// By accuracy, the best one first: of the validation, or of the test if there was none.
std::vector<const ComparedStrategy*> best_first(std::vector<const ComparedStrategy*> all);
// "Best validation top-1: lr 0.001, hidden 32. "; nothing if all have the same.
std::string best_text(const std::vector<const ComparedStrategy*>& all);

// One row per strategy and combination. Speed-up: images/s divided by that of the first row.
Table comparison_table(const std::vector<ComparedStrategy>& strategies);
Json comparison_json(const std::vector<ComparedStrategy>& strategies);

}  // namespace ringtape
