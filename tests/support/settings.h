// Sets the settings of a training by name.
#pragma once
#include <initializer_list>
#include <string>
#include <utility>

#include "train/settings/options.h"

namespace ringtape::test {

// Settings that the present choice does not have are kept until a component that has them is chosen.
inline void set(TrainOptions& options, std::initializer_list<std::pair<const char*, std::string>> values) {
  for (const auto& [name, value] : values) set_recorded(options, name, value, name);
}

}  // namespace ringtape::test
