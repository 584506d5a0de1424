#pragma once
#include "train/settings/options.h"

namespace ringtape {

// Visits all options group by group, in the order of --help and config.toml.
class OptionWalk : public Fields {
 public:
  OptionGroup group{.title = ""};  // of the fields that follow
};
void visit(OptionWalk& f, TrainOptions& o);

}  // namespace ringtape
