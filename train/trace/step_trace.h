#pragma once
#include <chrono>
#include <string>

#include "comm/parallel/reducer.h"
#include "core/fields.h"
#include "train/trace/phase.h"
#include "train/trace/timeline.h"

namespace ringtape {

struct TraceOptions {
  std::string path;  // without extension; empty: no trace
  int64_t step = 3;
};
void visit(Fields& f, TraceOptions& o);

inline constexpr const char* kTraceFile = "trace.json";  // in the folder of a run of several ranks

// Records what every rank does in one step of a run: FILE.json and FILE.svg. Does nothing in the other steps.
class StepTrace {
 public:
  StepTrace(TraceOptions options, std::string title)
      : file_(std::move(options.path)), step_(options.step), title_(std::move(title)) {}

  // Unless there are options: records the step into this one file, as Chrome reads it.
  void otherwise_into(const std::string& path);
  void check() const;  // throws IoError if the files could not be written
  // Throw UsageError if a training of so many steps never comes to the step, or has passed it. Nothing without --trace.
  void check_before(int64_t steps) const;
  void check_after(int64_t steps) const;
  void begin(int64_t step);        // counted from 1
  bool on() const { return on_; }  // whether it is recorded
  void ended(StepPhase phase);     // called at the end of a phase, as by Step::run
  // In the recorded step a collective: rank 0 writes the files. Throws IoError.
  void end(const comm::Reducer* reducer, comm::ProcessGroup& group);

 private:
  std::string file_, only_;  // without extension; the one file
  int64_t step_;
  std::string title_;
  bool on_ = false;
  int64_t since_ = 0;  // end of the previous phase
  RankTimeline own_;
};

}  // namespace ringtape
