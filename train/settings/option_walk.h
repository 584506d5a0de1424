#pragma once
#include "train/settings/options.h"

namespace ringtape {

// Walks all options, in the order of --help and config.toml, group by group.
class OptionWalk : public Fields {
 public:
  virtual void group(const OptionGroup& group) = 0;
};
void visit(OptionWalk& f, TrainOptions& o);

}  // namespace ringtape
