#pragma once
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "train/settings/options.h"

namespace ringtape {

// Settings as text, from one source: a configuration file, a recipe, the metadata of weights, or flags.
struct Given {
  struct Setting {
    const Option* option;
    std::string text, origin;  // `origin`: the beginning of messages, "c.toml:3: lr"
  };
  std::string file = "";  // for messages; empty: flags
  std::vector<Setting> settings = {};

  const Setting* find(std::string_view name) const;  // null: not given
  void leave_out(std::initializer_list<std::string_view> names);
};

// The option that a key of a configuration file names. Throws UsageError, beginning with `where`, for unknown keys,
// with the nearest name, and for options that no run records.
const Option& recorded_option(const std::string& key, const std::string& where);

// A configuration file: flat TOML, one setting per line. Throws IoError, FormatError for text that is not TOML,
// UsageError for unknown keys, with the nearest name.
Given read_config(const std::string& path);
// A recipe for training with labels. Throws UsageError.
Given read_preset(const std::string& preset);
// One for a method: the settings for all methods, then those of the method's table. No preset: the default one, in
// which a method may be without a table. No method: the former alone. Throws UsageError.
Given read_preset(const std::optional<std::string>& preset, const std::string& method);
bool has_recipe(const std::string& preset, const std::string& method);
// What weights_metadata() wrote.
Given read_metadata(const std::map<std::string, std::string>& metadata, const std::string& path);

// Sets what the sources give, a later one overriding earlier ones: first the settings that select components, then all
// others, in the selected components. Throws UsageError for values that are not accepted, and for flags that are no
// settings of the selected components. A file may have settings of other components too, which are ignored; its value
// for a component that it selects, but a later source does not, also counts for the other one, unless it is the default
// of the first or not accepted by the second.
void apply_settings(TrainOptions& options, const std::vector<Given>& sources);

// The model that sources choose, with its settings; none: that of their data set.
Selection model_of(const std::vector<Given>& sources);

}  // namespace ringtape
