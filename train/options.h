#pragma once
#include <limits>
#include <map>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "core/check.h"

namespace ringtape {

// Everything that can be said about a training run. Each field is listed once in options.cpp, with its range
// and its help; flags, configuration files, the run's config.toml and --help all walk that list.
struct TrainOptions {
  std::string model;  // empty: as the data set has it
  int64_t hidden = 128;
  int64_t width = 64;
  bool no_stem_relu = false;
  int64_t stem_padding = 1;
  double dropout = 0;
  std::string weights;  // a file to begin with; empty: random

  std::string method;  // empty: supervised, with labels
  double temperature = 0;  // in this group 0, -1 or nothing mean that nothing is said: what the method has by itself
  int64_t projection_hidden = 0, projection_dim = 0, projection_layers = 0;
  std::string projection_norm = "method", prediction_norm = "method";
  bool head_bias = false;
  int64_t prediction_hidden = 0;
  bool fixed_prediction_lr = false;
  double momentum_encoder = 0.99, momentum_encoder_end = -1;
  int64_t queue = -1;
  bool queue_per_view = false;
  bool enqueue_between = false;
  int64_t bn_splits = 1;
  double barlow_lambda = 5e-3, loss_scale = 1;
  std::string barlow_statistics = "biased";
  int64_t prototypes = 512;
  double sinkhorn_epsilon = 0.05;
  int64_t sinkhorn_iterations = 3;
  int64_t freeze_prototypes = 0;  // epochs
  int64_t queue_epoch = 0;
  bool gather_distributed = false;

  int64_t views = 2;
  int64_t small_views = 0, small_view_size = 16;
  double small_crop_low = 0.05, small_crop_high = 0.14;
  double crop_low = 0.08, crop_high = 1;
  double view_flip = 0.5;
  double jitter = 0.8, brightness = 0.4, contrast = 0.4, saturation = 0.4, hue = 0.1;
  double gray = 0.2;
  double blur = 0, blur_second = -1;  // -1: as of the first
  double solarize_second = 0;

  int64_t knn_every = 1;  // epochs
  int64_t knn_k = 200;
  double knn_temperature = 0.1;
  int64_t knn_bank = 0;  // images; 0: all
  bool online_probe = false;

  std::string data = "shapes";
  std::string data_dir;
  int64_t train_size = 20'000;
  int64_t test_size = 4'000;
  int64_t val_size = -1;  // -1: as the data set has it
  int64_t image_size = 0;  // 0: as the images have it
  std::string normalize = "dataset";

  int64_t crop_padding = 0;  // these four: of training images alone
  bool flip = false;
  double rotation = 0;
  int64_t cutout = 0;

  int64_t epochs = 5;
  int64_t batch_size = 64;
  std::string optimizer = "adam";
  double lr = 1e-3;
  double base_lr = 0;  // 0: lr is what is said
  double momentum = 0.9;
  bool nesterov = false;
  double weight_decay = 0;
  double lars_eta = 0.02;
  bool lars_clip = false;
  double label_smoothing = 0;
  int64_t accumulate = 1;
  double clip_grad_norm = 0;  // 0: not
  double ema = 0;             // 0: none

  std::string schedule = "constant";
  int64_t step_size = 30;
  double gamma = 0.1;
  double warmup_epochs = 0;
  double warmup_lr = 0;
  double final_lr = 0;
  std::string schedule_by = "step";

  std::string device = "auto";
  int64_t threads = 0;  // 0: RINGTAPE_THREADS, else all cores
  int64_t workers = 1;
  int64_t seed = 1;
  bool deterministic = false;
  std::string precision = "f32";
  int64_t limit_train_batches = 0;  // 0: no limit
  int64_t limit_eval_batches = 0;

  std::string strategy = "auto";
  int64_t devices = 1;
  std::string gpu_ids;
  std::string transport = "auto";
  bool sync_bn = false;
  bool dp_persistent = false;
  int64_t batch_size_per_rank = 0;  // 0: as batch_size has it
  std::string lr_scale = "none";
  double bucket_mb = 25;      // MiB
  bool no_overlap = false;
  std::string gradient_reduction = "sum";
  int64_t powersgd_rank = 2;
  double comm_timeout = 600;  // seconds

  std::string run;  // empty: runs/MODEL-DATA-TIME
  bool overwrite = false;
  bool resume = false;
  int64_t checkpoint_every = 1;
  int64_t checkpoint_steps = 0;
  int64_t keep = 2;
  std::string exported = "last";
  std::string trace;  // a path without its ending; empty: none
  int64_t trace_step = 3;
  int64_t log_every = 0;
  bool json = false;
};

struct Range {
  double low = -std::numeric_limits<double>::infinity(), high = std::numeric_limits<double>::infinity();
  bool below_high = false;  // high itself is not allowed
  bool above_low = false;   // nor is low
};

// One row of the list.
struct Option {
  using Member = std::variant<std::string TrainOptions::*, int64_t TrainOptions::*, double TrainOptions::*,
                              bool TrainOptions::*>;

  const char* group;
  const char* name;  // "batch-size": the flag without its dashes, and the key in a configuration file
  Member member;
  const char* placeholder;  // of the value in --help: "N"; empty for a switch
  const char* help;
  Range range = {};
  std::vector<std::string> (*choices)() = nullptr;
  const char* automatic = nullptr;  // what --help shows in place of the default, which may then be out of range: it stands for "not given"
  bool evaluate = false;            // `evaluate` takes it too
  bool recorded = true;             // a setting of the training, not of this one invocation
};
std::span<const Option> train_options();
// Whether it means anything to a training with labels, or to a self-supervised one.
bool concerns(const Option& option, bool self_supervised);
bool may_change(const Option& option);  // when a training is continued
bool of_rank(const Option& option);     // whether ranks that train together may differ in it

// Throws UsageError, beginning with `origin`, for text that is not such a value, is out of range or not a
// choice.
void set_option(TrainOptions& options, const Option& option, const std::string& text,
                const std::string& origin);
std::string option_text(const TrainOptions& options, const Option& option);
// The same of text that a program wrote: what stood for "not given" does so again.
void set_recorded(TrainOptions& options, const Option& option, const std::string& text, const std::string& origin);
bool is_switch(const Option& option);

// Configuration files: flat TOML, a line an option. Throws IoError, FormatError for text that is not TOML,
// UsageError for unknown keys (with the nearest one) and values out of range.
void read_config(TrainOptions& options, const std::string& path);
std::string config_text(const TrainOptions& options);
// A recipe of configs/ssl by its name, for a method: the settings it has for all of them, then the method's. Throws UsageError.
void read_preset(TrainOptions& options, const std::string& name, const std::string& method);
bool has_recipe(const std::string& preset, const std::string& method);

// The settings that stay what they were when a training is continued: as text, by name.
std::map<std::string, std::string> kept_settings(const TrainOptions& options);
// Those of them that were others at `before`, as "--lr 0.001 (was 0.1)". What `before` has not, as an option that is newer than it, was
// its default.
std::vector<std::string> changed_settings(const TrainOptions& options, const std::map<std::string, std::string>& before);
// What checkpoints have a checksum of that have no settings by name.
std::string checksummed_settings(const TrainOptions& options);
// The settings that all ranks of a training have in common, a line each: all but what each does its part with.
std::string common_settings_text(const TrainOptions& options);
// Throws UsageError, naming the first one, unless `options` has the same as `before`, the run at `path`; `otherwise`: what else to do.
void check_same_settings(const TrainOptions& options, const TrainOptions& before, const std::string& path,
                         const std::string& otherwise = "choose another --run");

// What a file of weights says of itself, so that it can be evaluated without its run: strings to strings.
std::map<std::string, std::string> weights_metadata(const TrainOptions& options);
void apply_metadata(TrainOptions& options, const std::map<std::string, std::string>& metadata,
                    const std::string& path);

// "auto" fields replaced by what they mean on this machine, for a training by so many ranks. Throws UsageError where options contradict
// each other and DeviceError for a device that is not there.
TrainOptions resolve(TrainOptions options, int ranks = 1);

// What --base-lr makes of --lr. To be called behind a file or a command line: where it gives --lr, an earlier --base-lr no longer counts.
// Throws UsageError where it gives both.
void settle_lr(TrainOptions& options, bool gives_lr, bool gives_base_lr, const std::string& origin);

// Where nothing says which model: the data set's. Throws UsageError for an unknown data set.
void settle_model(TrainOptions& options);

// The learning rate at its peak: --lr as --lr-scale has it for so many ranks.
double peak_lr(const TrainOptions& options, int ranks);

std::vector<std::string> optimizer_names();
std::vector<std::string> schedule_names();

}  // namespace ringtape
