#pragma once
#include <functional>

#include "train/compare/finished_run.h"
#include "train/io/json.h"

namespace ringtape {

// Over seeds: the mean and the standard deviation (of a sample, with n - 1), which one seed has not.
struct Spread {
  double mean = 0;
  std::optional<double> deviation;
};
Spread spread_of(const std::vector<double>& values);

// The runs of one strategy, a seed each.
struct ComparedStrategy {
  std::string name;
  int64_t devices = 1;
  std::vector<FinishedRun> runs;

  std::string str() const;                                                        // "ddp on 2 devices"
  std::optional<Spread> spread(std::optional<double> FinishedRun::*value) const;  // nothing unless all runs have it
  Spread spread(double FinishedRun::*value) const;
};

// One figure of a row.
struct Column {
  const char *head, *key;  // in the table, with its unit, and in JSON
  std::function<std::optional<Spread>(const ComparedStrategy&)> value;
  int digits;
  double scale;  // from the unit in JSON to that in the table
};
template <class Member>
std::function<std::optional<Spread>(const ComparedStrategy&)> field(Member member) {
  return [member](const ComparedStrategy& s) -> std::optional<Spread> { return s.spread(member); };
}

// A table in Markdown: the words that a row begins with, then its figures.
struct TableRow {
  std::vector<std::string> words;
  const ComparedStrategy* runs;
  std::vector<Column> columns;  // the same ones in all rows
};
std::string markdown_table(const std::vector<std::string>& heads, const std::vector<TableRow>& rows);
// Adds seeds, runs and figures to an object.
void add_figures(Json& out, const ComparedStrategy& runs, const std::vector<Column>& columns);

// One row a strategy; speed-ups are ratios of images/s to those of the first.
std::string comparison_table(const std::vector<ComparedStrategy>& strategies);  // Markdown
Json comparison_json(const std::vector<ComparedStrategy>& strategies);

}  // namespace ringtape
