#pragma once
#include <chrono>
#include <string>

#include "comm/parallel/reducer.h"
#include "core/fields.h"
#include "train/loop/step.h"
#include "train/trace/timeline.h"

namespace ringtape {

struct TraceOptions {
  std::string path;  // without its ending; empty: none
  int64_t step = 3;
};
void visit(Fields& f, TraceOptions& o);

// Writes down what every rank does in one step of a training: FILE.json and FILE.svg. Does nothing in the others.
class StepTrace {
 public:
  StepTrace(TraceOptions options, std::string title)
      : file_(std::move(options.path)), step_(options.step), title_(std::move(title)) {}

  void begin(int64_t step);  // counted from 1
  void ended(Phase phase);   // as Step::run says
  // A collective, in that step: the first rank writes. Throws IoError.
  void end(const comm::Reducer* reducer, comm::ProcessGroup& group);

 private:
  std::string file_;
  int64_t step_;
  std::string title_;
  bool on_ = false;
  int64_t since_ = 0;  // the end of the phase before
  RankTimeline own_;
};

}  // namespace ringtape
