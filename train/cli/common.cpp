#include "train/cli/common.h"

#include <fmt/core.h>

#include <cmath>

#include "nn/ssl/method.h"
#include "train/run/metrics_log.h"
#include "train/run/time_left.h"
#include "train/run/time_text.h"
#include "train/settings/presets.h"

namespace ringtape::cli {

static bool takes(Use use, const Option& option) {
  switch (use) {
    case Use::train: return option.concerns(false);
    case Use::pretrain: return option.concerns(true);
    case Use::evaluate: return option.info.evaluates || option.info.scope == FieldScope::weights;
    case Use::load: return takes(Use::evaluate, option) && option.group.title != std::string_view("Training");
    case Use::either: break;
  }
  return true;
}

std::vector<Flag> option_flags(Use use) {
  std::vector<Flag> out;
  for (const Option& option : train_options()) {
    if (!takes(use, option)) continue;
    const FieldInfo& info = option.info;
    std::string help = info.help;
    if (info.choices) {
      help += ":";
      for (const std::string& name : info.choices()) (help += ' ') += name;
    }
    const std::string fallback = info.automatic ? info.automatic : option.is_switch ? "" : option.initial;
    out.push_back(
        {option.group.heading(), option.name, info.unit, help, fallback, option.group.kind, option.group.name});
  }
  return out;
}

// The options of a file that do not apply to this run.
static std::string foreign_text(const TrainOptions& options, const Given& file) {
  std::string out;
  for (const Given::Setting& given : file.settings)
    if (!option_text(options, given.option->name)) out += concat(out.empty() ? "" : ", ", given.option->name);
  return out;
}

std::vector<std::string> apply_flags(TrainOptions& options, const Invocation& invocation, std::vector<Given> earlier) {
  Given config, flags;
  if (const std::string* const path = invocation.flag("config")) config = read_config(*path);
  for (const auto& [name, text] : invocation.flags)
    if (const Option* const option = find_option(name)) flags.settings.push_back({option, text, concat("--", name)});
  earlier.insert(earlier.end(), {config, flags});
  apply_settings(options, earlier);
  settle_model(options);
  std::vector<std::string> notes;
  if (const std::string foreign = foreign_text(options, config); !foreign.empty())
    notes.push_back(
        concat(config.file, ": ", foreign, ": ignored, because this training does not have these settings"));
  if (const double warmup = options.schedule.warmup_epochs;
      warmup > double(options.trainer.epochs) && !invocation.flag("warmup-epochs")) {
    settle_warmup(options);
    notes.push_back(concat("the warm-up of ", warmup, " epochs is shortened to the length of the training"));
  }
  return notes;
}

Given recipe_of(const Invocation& invocation, Use use) {
  const std::string *const preset = invocation.flag("preset"), *const method = invocation.flag("method");
  if (use == Use::train) return preset ? read_preset(*preset) : Given{};
  if (!preset && invocation.flag("config")) return {};
  if (!method) {
    std::string known;
    for (const nn::MethodEntry& entry : nn::methods()) known += concat(known.empty() ? "" : ", ", entry.name);
    throw UsageError("--method: expected one of " + known);
  }
  return read_preset(preset ? std::optional(*preset) : std::nullopt, *method);
}

std::vector<Flag> recipe_flags(Use use) {
  std::string names, fallback = kDefaultPreset;
  if (use != Use::pretrain) names += ":" + preset_names(false);
  if (use == Use::train) fallback.clear();
  else names += concat(use == Use::pretrain ? ":" : "; of methods:", preset_names(true));
  if (use == Use::either) fallback = concat("of methods ", fallback);
  return {{"Run", "preset", "NAME", "recipe to start from; flags override it" + names, fallback},
          {"Run", "config", "FILE",
           concat("TOML file of the settings above, one per line: batch-size = 64; flags override it",
                  use == Use::pretrain ? "; without --preset it replaces the recipe" : ""),
           ""}};
}

std::string percent(double fraction) { return fmt::format("{:.2f} %", 100 * fraction); }

// Of a training that diverges it may have any size.
static std::string loss_text(double loss) {
  return std::abs(loss) < 1e6 ? fmt::format("loss {:.4f}", loss) : fmt::format("loss {:.4g}", loss);
}
// Large images may be less than one a second.
static std::string speed_text(const Metrics& m) {
  const double speed = m.images_per_s.value_or(0);
  return speed > 0 && speed < 10 ? fmt::format("{:.2f}", speed) : with_commas(int64_t(speed));
}

static std::string step_text(const Metrics& m, int64_t epochs) {
  std::string out =
      fmt::format("{:<12} step {:<7} {}  lr {:.4g}  {} images/s", fmt::format("epoch {}/{}", m.epoch, epochs), m.step,
                  loss_text(m.loss.value_or(0)), m.lr.value_or(0), speed_text(m));
  if (m.grad_norm) out += fmt::format("  gradient norm {:.4g}", *m.grad_norm);
  if (m.loss_scale) out += fmt::format("  loss scale {:g}", *m.loss_scale);
  return out;
}

// The end of a line.
static std::string end_text(const Metrics& m) {
  std::string out;
  if (m.loader_images_per_s)
    out += fmt::format("  data {:.0f} % of the time, loader up to {} images/s",
                       100 * m.data_s.value_or(0) / std::max(m.seconds.value_or(0), 1e-9),
                       with_commas(int64_t(*m.loader_images_per_s)));
  if (m.comm_bytes && m.steps > 0)
    out += fmt::format("  comm {:.1f} MB per step", *m.comm_bytes / 1e6 / double(m.steps));
  if (m.comm_s && m.steps > 0)
    out += fmt::format(", {:.0f} % hidden", 100 * hidden_share(*m.comm_s, m.exposed_s.value_or(0)));
  if (m.left_s && worth_telling(*m.left_s)) out += concat("  about ", duration_text(*m.left_s), " left");
  return out;
}

// A line of a self-supervised run: its loss, or the kNN accuracy of its features.
static std::string method_text(const Metrics& m, int64_t epochs) {
  std::string out = fmt::format("{:<12} {:<5}  ", fmt::format("epoch {}/{}", m.epoch, epochs), m.split);
  if (m.loss) out += concat(loss_text(*m.loss), "  ");
  if (m.top1) out += fmt::format("top-1 {:>8}  top-5 {:>8}  ", percent(*m.top1), percent(m.top5.value_or(0)));
  if (m.spread) out += fmt::format("spread {:.4f}  ", *m.spread);
  out += fmt::format("{:>9} images/s  {:.2f} s", speed_text(m), m.seconds.value_or(0));
  if (m.lr) out += fmt::format("  lr {:.4g}", *m.lr);
  return out + end_text(m);
}

std::string metrics_text(const Metrics& m, int64_t epochs) {
  if (m.split == "train_step") return step_text(m, epochs);
  if (m.split == "knn" || m.split == "probe" || m.spread) return method_text(m, epochs);
  const std::string head = m.split == "test" ? "" : fmt::format("epoch {}/{}", m.epoch, epochs);
  std::string out = fmt::format("{:<12} {:<5}  {}  top-1 {:>8}  top-5 {:>8}{}  {:>9} images/s  {:.2f} s", head, m.split,
                                loss_text(m.loss.value_or(0)), percent(m.top1.value_or(0)), percent(m.top5.value_or(0)),
                                m.uneven ? fmt::format("  balanced {:>8}", percent(m.balanced.value_or(0))) : "",
                                speed_text(m), m.seconds.value_or(0));
  if (m.lr) out += fmt::format("  lr {:.4g}", *m.lr);
  if (m.split == "val" && m.steps > 0) out += concat("  at step ", m.step);  // within the epoch
  return out + end_text(m);
}

}  // namespace ringtape::cli
