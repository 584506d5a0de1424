#pragma once
#include <span>

namespace ringtape {

// A file of configs/ssl, as it was when this was built: recipes for self-supervised methods, a table each.
struct Preset {
  const char* name;  // of the file, without its ending
  const char* text;  // TOML
};
std::span<const Preset> presets();

}  // namespace ringtape
