#pragma once
#include <string>
#include <vector>

#include "train/cli/command.h"
#include "train/options.h"
#include "train/run/metrics_log.h"

namespace ringtape::cli {

// The flags of the option list, all of them or those that `evaluate` takes.
std::vector<Flag> option_flags(bool evaluate_only);

// Applies --config, then the flags.
void apply_flags(TrainOptions& options, const Invocation& invocation);

std::string percent(double fraction);                              // "92.68 %"
std::string metrics_text(const Metrics& metrics, int64_t epochs);  // one line for people

}  // namespace ringtape::cli
