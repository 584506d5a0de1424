#include "train/cli/predictor_of.h"

#include "core/device.h"
#include "kernels/arithmetic.h"
#include "train/cli/common.h"
#include "train/cli/trained.h"
#include "train/inference/find_weights.h"

namespace ringtape::cli {

Predictor predictor_of(const Invocation& invocation) {
  const std::string* const key = invocation.flag("weights-key");
  const std::string set = key ? *key : "";
  // The run's precision and test copies, unless flags say otherwise.
  TrainOptions options = options_of(invocation, find_weights(invocation.positionals[0], set).settings);
  settle(options.execution);
  set_threads(int(options.execution.threads));
  set_arithmetic(arithmetic_of(options.execution));
  return Predictor(invocation.positionals[0], {.weights_key = set,
                                               .device = parse_device(options.execution.device),
                                               .precision = compute_dtype(options.execution),
                                               .copies = options.trainer.test_copies});
}

std::vector<Flag> predictor_flags() {
  std::vector<Flag> out;
  for (Flag& flag : option_flags(Use::evaluate))
    if ((flag.group == "Execution" && flag.name != "seed") || flag.name == "weights-key")
      out.push_back(std::move(flag));
  return out;
}

}  // namespace ringtape::cli
