#pragma once
#include <string>

#include "core/fields.h"

namespace ringtape {

// The folder of a run and the form of its output.
struct RunOptions {
  std::string name;  // empty: runs/MODEL-DATA-TIME
  bool overwrite = false;
  bool resume = false;
  int64_t log_every = 0;  // steps; 0: epochs only
  bool json = false;
  int64_t snapshots = 20;
  std::string on_save;           // a command; empty: RINGTAPE_ON_SAVE, else none
  double on_save_timeout = 600;  // seconds
};
void visit(Fields& f, RunOptions& o);

}  // namespace ringtape
