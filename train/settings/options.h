#pragma once
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/check.h"
#include "train/checkpoint/checkpoint_options.h"
#include "train/data/dataset.h"
#include "train/data/transform.h"
#include "train/data/views.h"
#include "train/evaluation/evaluation.h"
#include "train/loop/callback.h"
#include "train/loop/step.h"
#include "train/loop/trainer_options.h"
#include "train/optim/schedule.h"
#include "train/run/run_options.h"
#include "train/trace/step_trace.h"

namespace ringtape {

class Json;
struct MethodPlan;

// All settings of a run: the options of its components. Each component lists its own options, with range and help
// (core/fields.h). Flags, configuration files, the run's config.toml and --help walk these lists. Only the command line
// and the code that assembles the components know all of them.
struct TrainOptions {
  Selection model;          // one of models(); empty: the data set's default
  std::string weights;      // file with initial weights; empty: random
  std::string weights_key;  // of a set of weights in that file
  Selection method;         // one of nn::methods(); empty: supervised, with labels
  ViewOptions views;
  EvaluationOptions evaluation;
  DataOptions data;
  Augmentation augmentation;    // of training images in supervised runs,
  ChangeOptions changes;        // and more of it
  TransformOptions transforms;  // of the program's own, before the augmentation or the views
  TrainerOptions trainer;
  LimitOptions limits;
  StepOptions step;
  ParameterOptions parameters;
  ScheduleOptions schedule;
  ExecutionOptions execution;
  ParallelOptions parallel;
  CheckpointOptions checkpoint;
  CallbackOptions callbacks;
  RunOptions run;
  TraceOptions trace;

  TrainOptions();
  TrainOptions(const TrainOptions&);
  TrainOptions(TrainOptions&&) noexcept;
  TrainOptions& operator=(const TrainOptions&);
  TrainOptions& operator=(TrainOptions&&) noexcept;
  ~TrainOptions();
  bool self_supervised() const { return !method.name.empty(); }
};

// The kind of training that an option applies to.
enum class Learning : uint8_t { any, supervised, self_supervised };

// A group of options: of every run, or of one component.
struct OptionGroup {
  const char* title;  // "Optimizer"
  Learning learning = Learning::any;
  const char* kind = "";  // "optimizer": the option that selects the component; empty: for every run
  std::string name = "";  // "lars"
  bool is_chosen = true;  // whether the options being walked select it
  bool in_step = false;   // `bench step` has its options: a single step depends on them

  std::string heading() const { return name.empty() ? title : concat(title, " ", name); }
  bool concerns(bool self_supervised) const {
    return learning == Learning::any || (learning == Learning::self_supervised) == self_supervised;
  }
};

// One row of the list of all options. Several components may have options of the same name.
struct Option {
  OptionGroup group;
  const char* name;  // "batch-size": the flag without its dashes, and the key in a configuration file
  FieldInfo info;
  std::string initial;  // the default, as text
  bool is_switch, is_text;

  bool is_recorded() const { return info.scope != FieldScope::invocation; }
  bool concerns(bool self_supervised) const {
    return group.concerns(self_supervised) && !(self_supervised && info.with_labels);
  }
};
std::span<const Option> train_options();
const Option* find_option(std::string_view name);  // the first of that name; null: none
// Whether an option of that name applies to this kind of training.
bool concerns(std::string_view name, bool self_supervised);

// The options that apply to a run, in order, and their values as text; without the options of components that are not
// selected.
struct OptionValue {
  const Option* option;
  std::string text;
};
std::vector<OptionValue> values_of(TrainOptions options);
// The value of one option; nothing if it does not apply to the run.
std::optional<std::string> option_text(TrainOptions options, std::string_view name);
// Sets an option of the selected components, as a flag does. Throws UsageError, beginning with `origin`, for text that
// cannot be parsed, is out of range or not a choice, and if no selected component has such an option.
void set_option(TrainOptions& options, std::string_view name, const std::string& text, const std::string& origin);

std::string config_text(const TrainOptions& options);  // a configuration file, see given.h
// The values in a file's content as they are, for showing them: numbers, texts, true and false, by name. Throws
// FormatError, beginning with `path`.
Json config_values(std::string_view content, const std::string& path);

// The settings that must not change when a run is resumed, as text by name.
std::map<std::string, std::string> kept_settings(const TrainOptions& options);
// The settings that differ from `before`, as "--lr 0.001 (was 0.1)". An option that `before` lacks, because it was
// added later, counts as having had its default.
std::vector<std::string> changed_settings(const TrainOptions& options,
                                          const std::map<std::string, std::string>& before);
// The settings that must be equal on all ranks, one per line: all except those of a single rank, such as its device.
std::string common_settings_text(const TrainOptions& options);
// Throws UsageError, naming the first difference, unless `options` equals `before`, the settings of the run at `path`.
// `otherwise`: an alternative for the message.
void check_same_settings(const TrainOptions& options, const TrainOptions& before, const std::string& path,
                         const std::string& otherwise = "choose another --run");

// Metadata of a file of weights, strings to strings, so that it can be evaluated without its run.
std::map<std::string, std::string> weights_metadata(const TrainOptions& options);

// Replaces "auto" values by what they mean on this machine, for a run with `ranks` ranks. Throws UsageError if options
// contradict each other, DeviceError for a device that does not exist.
TrainOptions resolve(TrainOptions options, int ranks = 1);
// Throws UsageError for settings that do not work for a self-supervised run on `ranks` ranks.
void check_pretraining(const TrainOptions& options, int ranks);

MethodPlan method_plan(const TrainOptions& options);  // of a self-supervised run; refers to the options

// If no model is given, selects the data set's default. Throws UsageError for an unknown data set.
void settle_model(TrainOptions& options);

// Limits the warm-up to the length of the run.
void settle_warmup(TrainOptions& options);

}  // namespace ringtape
