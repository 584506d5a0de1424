// Options as TOML, and as the metadata of a file of weights.
#include <toml++/toml.h>

#include <algorithm>

#include "train/aliases.h"
#include "train/io/file.h"
#include "train/methods.h"
#include "train/options.h"
#include "train/presets.h"
#include "train/suggest.h"

namespace ringtape {

static const Option& find_key(const std::string& key, const std::string& where) {
  std::string name = key;
  std::replace(name.begin(), name.end(), '_', '-');
  std::vector<std::string> known;
  for (const Option& option : train_options()) {
    if (option.recorded && name == option.name) return option;
    RT_CHECK_AS(UsageError, name != option.name, where, ": '", key, "' belongs on the command line, as --",
                name);
    if (option.recorded) known.emplace_back(option.name);
  }
  const Alias* const alias = find_alias(name);
  RT_CHECK_AS(UsageError, !alias || !alias->flag.empty(), where, ": unknown key '", key, "'", alias_text(*alias));
  const std::string meant = alias ? std::string(alias->flag) : nearest(name, known);
  detail::fail<UsageError>(
      where, ": unknown key '", key, "'",
      meant.empty() ? "; `ringtape train --help` lists all" : "; did you mean " + meant + "?");
}

static std::string value_text(const toml::node& value, const std::string& where) {
  if (const auto* s = value.as_string()) return s->get();
  if (const auto* b = value.as_boolean()) return b->get() ? "true" : "false";
  if (const auto* i = value.as_integer()) return std::to_string(i->get());
  if (const auto* f = value.as_floating_point()) return shortest(f->get());
  detail::fail<UsageError>(where, ": expected a string, a number, true or false");
}

// The parser's stack grows with the parts of a key, which are as many as a line can have.
static void check_lines(const std::string& content, const std::string& path) {
  constexpr size_t kLongest = 8192;
  int64_t number = 1;
  for (size_t at = 0; at < content.size(); ++number) {
    const size_t end = std::min(content.find('\n', at), content.size());
    RT_CHECK_AS(FormatError, end - at <= kLongest, path, ":", number, ": a line of ", end - at,
                " bytes; a configuration has a setting a line, of ", kLongest, " at most");
    at = end + 1;
  }
}

static toml::table parse(const std::string& content, const std::string& path) {
  check_lines(content, path);
  try {
    return toml::parse(content);
  } catch (const toml::parse_error& e) {
    detail::fail<FormatError>(path, ":", e.source().begin.line, ": not valid TOML: ", std::string(e.description()));
  }
}

static void apply(TrainOptions& options, const toml::table& table, const std::string& path) {
  bool lr = false, base_lr = false;
  for (const auto& [key, value] : table) {
    if (value.is_table()) continue;
    const std::string name(key.str()), where = concat(path, ":", key.source().begin.line);
    const Option& option = find_key(name, where);
    set_recorded(options, option, value_text(value, where + ": " + name), where + ": " + name);
    lr |= option.name == std::string_view("lr"), base_lr |= option.name == std::string_view("base-lr");
  }
  settle_lr(options, lr, base_lr, path + ": ");
}

void read_config(TrainOptions& options, const std::string& path) {
  constexpr int64_t kLongest = 1 << 20;  // bytes
  const toml::table table = parse(read_file(path, kLongest), path);
  for (const auto& [key, value] : table)
    RT_CHECK_AS(UsageError, !value.is_table(), path, ":", key.source().begin.line, ": a table '", std::string(key.str()),
                "'; a configuration has a line a setting");
  apply(options, table, path);
}

static toml::table find_preset(const std::string& name) {
  std::vector<std::string> known;
  for (const Preset& preset : presets()) {
    if (name == preset.name) return parse(preset.text, concat("preset ", name));
    known.emplace_back(preset.name);
  }
  throw UsageError("--preset: " + unknown("preset", name, known));
}

bool has_recipe(const std::string& preset, const std::string& method) { return find_preset(preset)[method].is_table(); }

void read_preset(TrainOptions& options, const std::string& name, const std::string& method) {
  check_method_name(method);
  const std::string path = concat("preset ", name);
  const toml::table table = find_preset(name);
  const toml::table* const own = table[method].as_table();
  RT_CHECK_AS(UsageError, own, "--preset ", name, ": has no recipe for ", method);
  apply(options, table, path);
  apply(options, *own, path);
  options.method = method;
}

static std::string quoted(const std::string& s) {
  std::string out = "\"";
  for (char c : s) {
    constexpr const char* hex = "0123456789abcdef";
    const auto u = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\')
      out += '\\', out += c;
    else if (u < 0x20 || u == 0x7f)
      out += std::string("\\u00") + hex[u >> 4] + hex[u & 15];
    else
      out += c;
  }
  return out + '"';
}

static std::string setting_line(const TrainOptions& options, const Option& option) {
  const std::string value = option_text(options, option);
  const bool is_string = std::holds_alternative<std::string TrainOptions::*>(option.member);
  return std::string(option.name) + " = " + (is_string ? quoted(value) : value) + "\n";
}

std::string config_text(const TrainOptions& options) {
  const bool self_supervised = !options.method.empty();
  std::string out = concat("# Train again like this: ringtape ", self_supervised ? "pretrain" : "train", " --config THIS_FILE\n");
  std::string group;
  for (const Option& option : train_options()) {
    if (!option.recorded || !concerns(option, self_supervised)) continue;
    if (option.name == std::string_view(options.base_lr > 0 ? "lr" : "base-lr")) continue;  // the one that is made of the other
    if (group != option.group) out += "\n# " + (group = option.group) + "\n";
    out += setting_line(options, option);
  }
  return out;
}

static bool is_kept(const TrainOptions& options, const Option& option) {
  return option.recorded && !may_change(option) && concerns(option, !options.method.empty());
}

std::map<std::string, std::string> kept_settings(const TrainOptions& options) {
  std::map<std::string, std::string> out;
  for (const Option& option : train_options())
    if (is_kept(options, option)) out[option.name] = option_text(options, option);
  return out;
}

std::vector<std::string> changed_settings(const TrainOptions& options, const std::map<std::string, std::string>& before) {
  std::vector<std::string> out;
  std::map<std::string, std::string> unknown = before;
  for (const Option& option : train_options()) {
    unknown.erase(option.name);
    if (!is_kept(options, option)) continue;
    const auto found = before.find(option.name);
    if (found == before.end() && option.automatic) continue;  // its default is of this machine; the flag was compared with config.toml
    const std::string now = option_text(options, option), then = found == before.end() ? option_text({}, option) : found->second;
    if (now != then) out.push_back(concat("--", option.name, ' ', now, " (was ", then, ")"));
  }
  for (const auto& [name, value] : unknown) out.push_back(concat("--", name, ", which this ringtape does not have (was ", value, ")"));
  return out;
}

// The options in their order when checkpoints had a checksum of all; it does not change with the options there are now.
static constexpr const char* kChecksummed[] = {"model",
                                               "hidden",
                                               "width",
                                               "no-stem-relu",
                                               "stem-padding",
                                               "dropout",
                                               "method",
                                               "temperature",
                                               "projection-hidden",
                                               "projection-dim",
                                               "projection-layers",
                                               "projection-norm",
                                               "head-bias",
                                               "prediction-hidden",
                                               "prediction-norm",
                                               "fixed-prediction-lr",
                                               "momentum-encoder",
                                               "momentum-encoder-end",
                                               "queue",
                                               "queue-per-view",
                                               "enqueue-between",
                                               "bn-splits",
                                               "barlow-lambda",
                                               "barlow-statistics",
                                               "loss-scale",
                                               "prototypes",
                                               "freeze-prototypes",
                                               "sinkhorn-epsilon",
                                               "sinkhorn-iterations",
                                               "queue-epoch",
                                               "gather-distributed",
                                               "views",
                                               "small-views",
                                               "small-view-size",
                                               "small-crop-low",
                                               "small-crop-high",
                                               "crop-low",
                                               "crop-high",
                                               "view-flip",
                                               "jitter",
                                               "brightness",
                                               "contrast",
                                               "saturation",
                                               "hue",
                                               "gray",
                                               "blur",
                                               "blur-second",
                                               "solarize-second",
                                               "online-probe",
                                               "data",
                                               "train-size",
                                               "test-size",
                                               "val-size",
                                               "normalize",
                                               "image-size",
                                               "crop-padding",
                                               "flip",
                                               "rotation",
                                               "cutout",
                                               "batch-size",
                                               "accumulate",
                                               "optimizer",
                                               "lr",
                                               "base-lr",
                                               "momentum",
                                               "nesterov",
                                               "weight-decay",
                                               "lars-eta",
                                               "lars-clip",
                                               "clip-grad-norm",
                                               "ema",
                                               "label-smoothing",
                                               "schedule",
                                               "step-size",
                                               "gamma",
                                               "warmup-epochs",
                                               "warmup-lr",
                                               "final-lr",
                                               "schedule-by",
                                               "seed",
                                               "precision",
                                               "deterministic",
                                               "limit-train-batches",
                                               "sync-bn",
                                               "batch-size-per-rank",
                                               "lr-scale",
                                               "gradient-reduction",
                                               "powersgd-rank"};

std::string checksummed_settings(const TrainOptions& options) {
  std::string out;
  for (const std::string_view name : kChecksummed)
    for (const Option& option : train_options())
      if (option.name == name && concerns(option, !options.method.empty())) out += setting_line(options, option);
  return out;
}

std::string common_settings_text(const TrainOptions& options) {
  std::string out;
  for (const Option& option : train_options())
    if (option.recorded && !of_rank(option) && concerns(option, !options.method.empty())) out += setting_line(options, option);
  return out;
}

void check_same_settings(const TrainOptions& options, const TrainOptions& before, const std::string& path, const std::string& otherwise) {
  for (const Option& option : train_options()) {
    const std::string now = option_text(options, option), then = option_text(before, option);
    RT_CHECK_AS(UsageError, !is_kept(options, option) || now == then, "--", option.name, " ", now, ": ", path, " was trained with ", then,
                " so far; leave it so, or ", otherwise);
  }
}

// What decides the network and its test images, other than where they lie.
static bool describes_weights(const Option& option) {
  const std::string group = option.group, name = option.name;
  return option.evaluate && (group == "Model" || (group == "Data" && name != "data-dir") || name == "seed");
}

std::map<std::string, std::string> weights_metadata(const TrainOptions& options) {
  std::map<std::string, std::string> out{{"format", "pt"}};
  for (const Option& option : train_options())
    if (describes_weights(option)) out[std::string("ringtape.") + option.name] = option_text(options, option);
  return out;
}

void apply_metadata(TrainOptions& options, const std::map<std::string, std::string>& metadata,
                    const std::string& path) {
  for (const Option& option : train_options()) {
    const auto found = metadata.find(std::string("ringtape.") + option.name);
    if (found != metadata.end() && describes_weights(option))
      set_recorded(options, option, found->second, concat(path, ": metadata ", option.name));
  }
}

}  // namespace ringtape
