// Sets the settings of a training by name.
#pragma once
#include <initializer_list>
#include <string>
#include <utility>

#include "nn/ssl/method.h"
#include "train/settings/given.h"

namespace ringtape::test {

using NamedValues = std::initializer_list<std::pair<const char*, std::string>>;

// What a file with these values gives.
inline Given file_of(NamedValues values) {
  Given out{.file = "file"};
  for (const auto& [name, value] : values) out.settings.push_back({find_option(name), value, name});
  return out;
}

// Settings that the chosen components do not have are ignored.
inline void set(TrainOptions& options, NamedValues values) { apply_settings(options, {file_of(values)}); }

// A model, or the only kind that the method takes.
inline std::string model_for(const std::string& method, const std::string& model) {
  const char* const only = nn::find_method(method).model;
  return only ? only : model;
}

}  // namespace ringtape::test
