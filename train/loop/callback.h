#pragma once
#include <memory>
#include <span>
#include <vector>

#include "core/settings.h"
#include "train/loop/step.h"
#include "train/loop/task.h"
#include "train/run/metrics.h"

namespace ringtape {

// Code of one's own that a training calls: all ranks in the same order, so that it may use the group. An exception ends
// the training with its text. It has no state in checkpoints. With --elastic it is made anew, and begins() is called
// again, whenever ranks come or go. With --share-weights it must not write weights.
class Callback {
 public:
  virtual ~Callback() = default;
  virtual void begins(const Task& /*task*/, comm::ProcessGroup& /*group*/) {}   // before the first step
  virtual void after_step(int64_t /*step*/, const Step::Result& /*result*/) {}  // from 1; a GPU may still compute
  virtual void after_epoch(int64_t /*epoch*/) {}                                // from 1; behind its validation
  virtual void reported(const Metrics& /*metrics*/) {}                          // on rank 0 only: all that it reports
  virtual void ends() {}  // behind the test; not if a signal has stopped the training
};

// A callback that the command line knows by name, as --callback NAME,NAME.
struct CallbackEntry {
  const char* name;
  const char* summary;  // one line
  Settings settings = {};
  std::unique_ptr<Callback> (*make)(const Settings& settings);
};
std::span<const CallbackEntry> callbacks();
struct RegisterCallback {
  explicit RegisterCallback(const CallbackEntry& entry);
};

// `make` of a callback that is constructed from its settings.
template <class Made, class Options> std::unique_ptr<Callback> make_callback(const Settings& settings) {
  return std::make_unique<Made>(settings.as<Options>());
}

struct CallbackOptions {
  Selections chosen{callbacks()};
};
void visit(Fields& f, CallbackOptions& o);  // except the settings of each callback

using Callbacks = std::vector<std::unique_ptr<Callback>>;
Callbacks make_callbacks(const CallbackOptions& options);  // throws UsageError for unknown names and repeated ones

}  // namespace ringtape
