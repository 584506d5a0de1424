// Settings of a training by their names.
#pragma once
#include <initializer_list>
#include <string>
#include <utility>

#include "train/settings/options.h"

namespace ringtape::test {

// Those that what is chosen does not have are kept for what has them.
inline void set(TrainOptions& options, std::initializer_list<std::pair<const char*, std::string>> values) {
  for (const auto& [name, value] : values) set_recorded(options, name, value, name);
}

}  // namespace ringtape::test
