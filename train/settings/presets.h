#pragma once
#include <span>
#include <string>

namespace ringtape {

// A file of configs/, compiled in: the recipe of a training with labels; or, in configs/ssl/, recipes for
// self-supervised methods, one table per method.
struct Preset {
  const char* name;  // the file's name, without extension
  const char* text;  // TOML
  bool self_supervised;
};
std::span<const Preset> presets();
std::string preset_names(bool self_supervised);             // " corrected seed000": of that kind, for --help
inline constexpr const char* kDefaultPreset = "corrected";  // of self-supervised methods

}  // namespace ringtape
