#pragma once
#include <chrono>
#include <string>

#include "comm/reducer.h"
#include "train/step.h"
#include "train/trace/timeline.h"

namespace ringtape {

// Writes down what every rank does in one step of a training: FILE.json and FILE.svg. Does nothing in the others.
class StepTrace {
 public:
  StepTrace(std::string file, int64_t step, std::string title)  // an empty file: in none
      : file_(std::move(file)), step_(step), title_(std::move(title)) {}

  void begin(int64_t step);  // counted from 1
  void ended(Phase phase);   // as Step::run says
  // A collective, in that step: the first rank writes. Throws IoError.
  void end(const comm::Reducer* reducer, comm::ProcessGroup* group);

 private:
  std::string file_;
  int64_t step_;
  std::string title_;
  bool on_ = false;
  int64_t since_ = 0;  // the end of the phase before
  RankTimeline own_;
};

}  // namespace ringtape
