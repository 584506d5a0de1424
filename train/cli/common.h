#pragma once
#include <string>
#include <vector>

#include "core/check.h"
#include "core/parse.h"
#include "train/cli/command.h"
#include "train/run/metrics_log.h"
#include "train/settings/given.h"

namespace ringtape::cli {

// The flags of the option list that a command accepts: for supervised runs, for self-supervised runs, for both, for
// `evaluate`, or for what loads trained weights but tests nothing.
enum class Use : uint8_t { train, pretrain, either, evaluate, load };
std::vector<Flag> option_flags(Use use);

// Applies what earlier sources give, then --config, then the flags. Returns notes for the user, one line each.
std::vector<std::string> apply_flags(TrainOptions& options, const Invocation& invocation,
                                     std::vector<Given> earlier = {});
// The recipe of --preset; without it, for self-supervised runs the default one if there is no --config, else nothing.
// Throws UsageError.
Given recipe_of(const Invocation& invocation, Use use);
// The flags that name a recipe or a file with settings.
std::vector<Flag> recipe_flags(Use use);

// The number of a flag, in [low, high]; `fallback` if the flag is not given. Throws UsageError.
template <class T> T number_flag(const Invocation& invocation, const std::string& name, T low, T high, T fallback) {
  const std::string* const given = invocation.flag(name);
  if (!given) return fallback;
  const std::optional<T> out = parse_number(*given, low, high);
  RT_CHECK_AS(UsageError, out, name.size() == 1 ? "-" : "--", name, ": expected a ",
              std::is_integral_v<T> ? "whole " : "", "number from ", low, " to ", high, ", got '", *given, "'");
  return *out;
}

std::string percent(double fraction);                              // "92.68 %"
std::string metrics_text(const Metrics& metrics, int64_t epochs);  // one line of text

}  // namespace ringtape::cli
