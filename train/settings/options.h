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
#include "train/data/views.h"
#include "train/evaluation/evaluation.h"
#include "train/loop/trainer_options.h"
#include "train/optim/schedule.h"
#include "train/run/run_options.h"
#include "train/trace/step_trace.h"

namespace ringtape {

// Everything that can be said about a training: the settings of its components. Each component lists its own, with
// range and help (core/fields.h). Flags, configuration files, the run's config.toml and --help walk these lists. Only
// the command line, and what puts the components together, knows all of them.
struct TrainOptions {
  Selection model;      // of models(); empty: as the data set has it
  std::string weights;  // a file to begin with; empty: random
  Selection method;     // of nn::methods(); empty: supervised, with labels
  ViewOptions views;
  EvaluationOptions evaluation;
  DataOptions data;
  Augmentation augmentation;  // of training images, where labels are learnt
  TrainerOptions trainer;
  StepOptions step;
  ScheduleOptions schedule;
  ExecutionOptions execution;
  ParallelOptions parallel;
  CheckpointOptions checkpoint;
  RunOptions run;
  TraceOptions trace;

  TrainOptions();
  bool self_supervised() const { return !method.name.empty(); }
};

// Which trainings an option means anything to.
enum class Learning : uint8_t { any, supervised, self_supervised };

// A group of options: those of every training, or those that one component has.
struct OptionGroup {
  const char* title;       // "Optimizer"
  Learning learning = Learning::any;
  const char* kind = "";   // "optimizer": the option that names the component; empty: of every training
  std::string name = "";   // "lars"
  bool is_chosen = true;   // by the options that are walked

  std::string heading() const { return name.empty() ? title : concat(title, " ", name); }
  bool concerns(bool self_supervised) const {
    return learning == Learning::any || (learning == Learning::self_supervised) == self_supervised;
  }
};

// One row of the list of all options. Components may have options of the same name.
struct Option {
  OptionGroup group;
  const char* name;  // "batch-size": the flag without its dashes, and the key in a configuration file
  FieldInfo info;
  std::string initial;  // the default, as text
  bool is_switch, is_text;

  bool is_recorded() const { return info.scope != Scope::invocation; }
  bool concerns(bool self_supervised) const {
    return group.concerns(self_supervised) && !(self_supervised && info.with_labels);
  }
};
std::span<const Option> train_options();
const Option* find_option(std::string_view name);  // the first of that name; null: none

// The options of a training, in their order, and their values as text: not those that
// only other components or trainings have.
struct OptionValue {
  const Option* option;
  std::string text;
};
std::vector<OptionValue> values_of(const TrainOptions& options);
// The value of one of them; nothing where the training does not have it.
std::optional<std::string> option_text(const TrainOptions& options, std::string_view name);

// Throws UsageError, beginning with `origin`, for text that is not such a value, is out of range or not a choice, and
// where none of the chosen components has such an option. What differs from the chosen component's default is said of
// others of that kind, too, should one of them be chosen later.
void set_option(TrainOptions& options, std::string_view name, const std::string& text, const std::string& origin);
// The same of text in a file, which may have been meant for other components: what stood for "not given" does so again.
// Where the file does not name the component (`kind_is_named`), a later flag may: it is said of all that take it.
void set_recorded(TrainOptions& options, std::string_view name, const std::string& text, const std::string& origin,
                  bool kind_is_named = true);

// Configuration files: flat TOML, a line an option. Returns their names. Throws IoError, FormatError for text that is
// not TOML, UsageError for unknown keys (with the nearest one) and values out of range.
std::vector<std::string> read_config(TrainOptions& options, const std::string& path);
std::string config_text(const TrainOptions& options);
// A recipe of configs/ssl by its name, for a method: the settings it has for all of them,
// then the method's. Throws UsageError.
void read_preset(TrainOptions& options, const std::string& name, const std::string& method);
bool has_recipe(const std::string& preset, const std::string& method);

// The settings that stay what they were when a training is continued: as text, by name.
std::map<std::string, std::string> kept_settings(const TrainOptions& options);
// Those of them that were others at `before`, as "--lr 0.001 (was 0.1)". What `before` has not, as an option that is
// newer than it, was its default.
std::vector<std::string> changed_settings(const TrainOptions& options,
                                          const std::map<std::string, std::string>& before);
// The settings that all ranks of a training have in common, a line each: all but what each does its part with.
std::string common_settings_text(const TrainOptions& options);
// Throws UsageError, naming the first one, unless `options` has the same as `before`, the run
// at `path`; `otherwise`: what else to do.
void check_same_settings(const TrainOptions& options, const TrainOptions& before, const std::string& path,
                         const std::string& otherwise = "choose another --run");

// What a file of weights says of itself, so that it can be evaluated without its run: strings to strings.
std::map<std::string, std::string> weights_metadata(const TrainOptions& options);
void apply_metadata(TrainOptions& options, const std::map<std::string, std::string>& metadata,
                    const std::string& path);

// "auto" fields replaced by what they mean on this machine, for a training by so many ranks. Throws UsageError where
// options contradict each other and DeviceError for a device that is not there.
TrainOptions resolve(TrainOptions options, int ranks = 1);

// What --base-lr makes of --lr, after a file or a command line. Where it gives --lr, an earlier --base-lr no longer
// counts. Throws UsageError where it gives both.
void settle_lr(TrainOptions& options, bool gives_lr, bool gives_base_lr, const std::string& origin);

// Where nothing says which model: the data set's. Throws UsageError for an unknown data set.
void settle_model(TrainOptions& options);

// A warm-up that is longer than the training becomes as long as that.
void settle_warmup(TrainOptions& options);

}  // namespace ringtape
