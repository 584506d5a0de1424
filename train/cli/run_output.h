#pragma once
#include <string>

#include "core/log.h"
#include "core/printable.h"
#include "train/cli/standard_streams.h"
#include "train/run/run_dir.h"

namespace ringtape::cli {

// Writes a run's lines to train.log, and to standard output as text or, with --json, as the lines of metrics.jsonl.
class Output {
 public:
  Output(RunDir& run, bool json) : run_(run), json_(json) {
    set_log_sink([this](const std::string& line) { run_.log(line); });
  }
  ~Output() { set_log_sink({}); }
  void line(const std::string& text) {
    run_.log(text);
    if (!json_) print_line(printable(text));
  }
  void log(const std::string& text) { run_.log(text); }  // writes to train.log only
  void json(const std::string& text) {
    if (json_) print_line(text);
  }

 private:
  RunDir& run_;
  bool json_;
};

}  // namespace ringtape::cli
