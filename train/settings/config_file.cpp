// Options as TOML, and as metadata of a file of weights.
#include <toml++/toml.h>

#include <algorithm>

#include "core/registry.h"
#include "nn/ssl/method.h"
#include "train/io/file.h"
#include "train/io/json.h"
#include "train/settings/aliases.h"
#include "train/settings/given.h"
#include "train/settings/presets.h"

namespace ringtape {

const Option& recorded_option(const std::string& key, const std::string& where) {
  std::string name = key;
  std::replace(name.begin(), name.end(), '_', '-');
  std::vector<std::string> known;
  for (const Option& option : train_options()) {
    if (option.is_recorded() && name == option.name) return option;
    RT_CHECK_AS(UsageError, name != option.name, where, ": '", key, "' belongs on the command line, as --", name);
    if (option.is_recorded()) known.emplace_back(option.name);
  }
  const Alias* const alias = find_alias(name);
  RT_CHECK_AS(UsageError, !alias || !alias->flag.empty(), where, ": unknown key '", key, "'", alias_text(*alias));
  const std::string meant = alias ? std::string(alias->flag) : nearest(name, known);
  const std::string hint = meant.empty() ? "; `ringtape train --help-all` lists all" : "; did you mean " + meant + "?";
  detail::fail<UsageError>({where, ": unknown key '", key, "'", hint});
}

static std::string value_text(const toml::node& value, const std::string& where) {
  if (const auto* s = value.as_string()) return s->get();
  if (const auto* b = value.as_boolean()) return b->get() ? "true" : "false";
  if (const auto* i = value.as_integer()) return std::to_string(i->get());
  if (const auto* f = value.as_floating_point()) return shortest(f->get());
  detail::fail<UsageError>({where, ": expected a string, a number, true or false"});
}

// The parser recurses once per part of a dotted key, and a line can hold many parts: limits them.
static void check_lines(const std::string& content, const std::string& path) {
  constexpr size_t kLongest = 8192;
  int64_t number = 1;
  for (size_t at = 0; at < content.size(); ++number) {
    const size_t end = std::min(content.find('\n', at), content.size());
    RT_CHECK_AS(FormatError, end - at <= kLongest, path, ":", number, ": a line of ", end - at,
                " bytes; expected one setting per line, of at most ", kLongest, " bytes");
    at = end + 1;
  }
}

static toml::table parse(const std::string& content, const std::string& path) {
  check_lines(content, path);
  try {
    return toml::parse(content);
  } catch (const toml::parse_error& e) {
    detail::fail<FormatError>({path, ":", e.source().begin.line, ": not valid TOML: ", std::string(e.description())});
  }
}

static Given given_by(const toml::table& table, const std::string& path) {
  Given out{.file = path};
  for (const auto& [key, value] : table) {
    if (value.is_table()) continue;
    const std::string name(key.str()), where = concat(path, ":", key.source().begin.line);
    const Option& option = recorded_option(name, where);
    const Given::Setting* const before = out.find(option.name);
    RT_CHECK_AS(UsageError, !before, where, ": '", name, "' was set before, at ", before ? before->origin : "",
                "; keep one of the two");
    out.settings.push_back({&option, value_text(value, where + ": " + name), where + ": " + name});
  }
  return out;
}

Given read_config(const std::string& path) {
  constexpr int64_t kLongest = 1 << 20;  // bytes
  const toml::table table = parse(read_file(path, kLongest), path);
  for (const auto& [key, value] : table)
    RT_CHECK_AS(UsageError, !value.is_table(), path, ":", key.source().begin.line, ": a table '",
                std::string(key.str()), "'; expected settings only, one per line");
  return given_by(table, path);
}

Json config_values(std::string_view content, const std::string& path) {
  Json::Members out;
  for (const auto& [key, value] : parse(std::string(content), path)) {
    Json& to = out.emplace_back(key.str(), Json()).second;
    if (const auto* s = value.as_string()) to = s->get();
    if (const auto* b = value.as_boolean()) to = b->get();
    if (const auto* i = value.as_integer()) to = i->get();
    if (const auto* f = value.as_floating_point()) to = f->get();
  }
  return out;
}

std::string preset_names(bool self_supervised) {
  std::string out;
  for (const Preset& preset : presets())
    if (preset.self_supervised == self_supervised) out += concat(" ", preset.name);
  return out;
}

static toml::table find_preset(const std::string& name, bool self_supervised) {
  const Preset& preset = find_entry(presets(), name, "preset", "--preset: ");
  RT_CHECK_AS(UsageError, preset.self_supervised == self_supervised, "--preset ", name, ": a recipe of ringtape ",
              preset.self_supervised ? "pretrain" : "train", "; available here:", preset_names(self_supervised));
  return parse(preset.text, concat("preset ", name));
}

bool has_recipe(const std::string& preset, const std::string& method) {
  return find_preset(preset, true)[method].is_table();
}

Given read_preset(const std::string& preset) { return given_by(find_preset(preset, false), concat("preset ", preset)); }

Given read_preset(const std::optional<std::string>& preset, const std::string& method) {
  const std::string name = preset.value_or(kDefaultPreset);
  toml::table table = find_preset(name, true), own;
  if (method.empty()) return given_by(table, concat("preset ", name));
  nn::find_method(method);
  const toml::table* const found = table[method].as_table();
  RT_CHECK_AS(UsageError, found || !preset, "--preset ", name, ": has no recipe for ", method);
  if (found) own = *found;
  if (own.contains("lr") || own.contains("base-lr")) {
    table.erase("lr");
    table.erase("base-lr");
  }
  for (const auto& [key, value] : own) table.insert_or_assign(key, value);
  table.insert_or_assign("method", method);
  return given_by(table, concat("preset ", name));
}

static std::string toml_string(const std::string& s) {
  std::string out = "\"";
  for (char c : s) {
    constexpr const char* hex = "0123456789abcdef";
    const auto u = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') out += '\\', out += c;
    else if (u < 0x20 || u == 0x7f) out += std::string("\\u00") + hex[u >> 4] + hex[u & 15];
    else out += c;
  }
  return out + '"';
}

static std::string setting_line(const OptionValue& value) {
  return concat(value.option->name, " = ", value.option->is_text ? toml_string(value.text) : value.text, "\n");
}

std::string config_text(const TrainOptions& options) {
  const bool self_supervised = options.self_supervised();
  std::string out =
      concat("# Train again like this: ringtape ", self_supervised ? "pretrain" : "train", " --config THIS_FILE\n");
  const std::string_view made = options.schedule.base_lr > 0 ? "lr" : "base-lr";  // follows from the other option
  std::string heading;
  for (const OptionValue& value : values_of(options)) {
    if (!value.option->is_recorded()) continue;
    if (value.option->name == made) continue;
    if (heading != value.option->group.heading()) out += "\n# " + (heading = value.option->group.heading()) + "\n";
    out += setting_line(value);
  }
  return out;
}

static bool is_kept(const Option& option) { return option.is_recorded() && !option.info.may_change; }

std::map<std::string, std::string> kept_settings(const TrainOptions& options) {
  std::map<std::string, std::string> out;
  for (const OptionValue& value : values_of(options))
    if (is_kept(*value.option)) out[value.option->name] = value.text;
  return out;
}

std::vector<std::string> changed_settings(const TrainOptions& options,
                                          const std::map<std::string, std::string>& before) {
  std::vector<std::string> out;
  for (const auto& [option, now] : values_of(options)) {
    const FieldInfo& info = option->info;
    if (!is_kept(*option)) continue;
    const auto found = before.find(option->name);
    // The default depends on this machine; the flag has been compared with config.toml.
    if (found == before.end() && info.automatic) continue;
    const bool is_default = found == before.end() || (info.unset && found->second == info.unset);
    const std::string& then = is_default ? option->initial : found->second;
    if (now != then) out.push_back(concat("--", option->name, ' ', now, " (was ", then, ")"));
  }
  for (const auto& [name, value] : before)
    if (!find_option(name))
      out.push_back(concat("--", name, ", which this version of ringtape does not have (was ", value, ")"));
  return out;
}

std::string common_settings_text(const TrainOptions& options) {
  std::string out;
  for (const OptionValue& value : values_of(options))
    if (value.option->is_recorded() && value.option->info.scope != FieldScope::rank) out += setting_line(value);
  return out;
}

void check_same_settings(const TrainOptions& options, const TrainOptions& before, const std::string& path,
                         const std::string& otherwise) {
  for (const auto& [option, now] : values_of(options)) {
    if (!is_kept(*option)) continue;
    const std::string then = option_text(before, option->name).value_or("none");
    RT_CHECK_AS(UsageError, now == then, "--", option->name, " ", now, ": ", path, " was trained with ",
                then.empty() ? "none" : then, " so far; use the same value, or ", otherwise);
  }
}

static std::string metadata_key(const Option& option) { return concat("ringtape.", option.name); }

std::map<std::string, std::string> weights_metadata(const TrainOptions& options) {
  std::map<std::string, std::string> out{{"format", "pt"}};
  for (const OptionValue& value : values_of(options))
    if (value.option->info.scope == FieldScope::weights) out[metadata_key(*value.option)] = value.text;
  return out;
}

Given read_metadata(const std::map<std::string, std::string>& metadata, const std::string& path) {
  Given out{.file = path};
  for (const Option& option : train_options()) {
    const auto found = metadata.find(metadata_key(option));
    if (found != metadata.end() && option.info.scope == FieldScope::weights && !out.find(option.name))
      out.settings.push_back({&option, found->second, concat(path, ": metadata ", option.name)});
  }
  return out;
}

}  // namespace ringtape
