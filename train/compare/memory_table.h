#pragma once
#include <optional>
#include <string>
#include <vector>

#include "train/compare/finished_run.h"
#include "train/io/json.h"
#include "train/io/table.h"

namespace ringtape {

// The memory of a rank under a strategy, in bytes: what the formulas of train/loop/model_state.h say, and what a short
// training had.
struct MemoryRow {
  std::string strategy;
  int64_t devices = 1;
  int64_t formula = 0, buckets = 0;         // model_state_bytes(), bucket_bytes()
  std::optional<FinishedRun> run = {};      // nothing: it did not fit
  std::optional<double> deviation() const;  // of the model state from the formula, as a fraction
  std::optional<double> peak() const;       // of tensors, in the training without validation and test
};

Table memory_table(const std::vector<MemoryRow>& rows);
Json memory_json(const std::vector<MemoryRow>& rows);

}  // namespace ringtape
