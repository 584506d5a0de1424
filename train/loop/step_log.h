#pragma once
#include <chrono>
#include <functional>

#include "core/readback.h"
#include "train/loop/step.h"
#include "train/run/metrics_log.h"

namespace ringtape {

// Lines of metrics within an epoch, with split "train_step": for every `every`-th step its loss, learning rate, images
// per second since the previous line, and, if they exist, gradient norm and loss scale. Values are read from the device
// when the next line is due, so that nothing waits.
class StepLog {
 public:
  using Report = std::function<void(const Metrics&)>;
  StepLog(int64_t every, Report report) : every_(every), report_(std::move(report)) {}  // every 0: none

  // Call after each step; `images` is the size of its batch on all ranks, `epoch` counts from 1.
  void add(const Step& step, const Step::Result& result, int64_t images, int64_t epoch, double lr);
  void flush();  // reports the last line

 private:
  using Clock = std::chrono::steady_clock;
  int64_t every_;
  Report report_;
  Clock::time_point since_ = Clock::now();
  int64_t images_ = 0;
  Metrics pending_;
  Readback loss_, norm_, scale_;
};

}  // namespace ringtape
