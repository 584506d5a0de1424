#pragma once
#include <span>

namespace ringtape {

// A file of configs/ssl, compiled in: recipes for self-supervised methods, one table per method.
struct Preset {
  const char* name;  // the file's name, without extension
  const char* text;  // TOML
};
std::span<const Preset> presets();
inline constexpr const char* kDefaultPreset = "corrected";

}  // namespace ringtape
