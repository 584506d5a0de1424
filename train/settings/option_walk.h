#pragma once
#include "train/settings/options.h"

namespace ringtape {

// Visits all options group by group, in the order of --help and config.toml.
class OptionWalk : public Fields {
 public:
  virtual void group(const OptionGroup& group) = 0;
};
void visit(OptionWalk& f, TrainOptions& o);

}  // namespace ringtape
