#pragma once
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "autograd/inference/graph.h"

namespace ringtape::inference {

// One kernel, or a few, ready to run: what its call says is settled, weights are in the form in which it reads them.
// Many threads may run it at once.
struct Step {
  using Run = std::function<void(std::span<const View> in, std::span<const View> out)>;
  std::vector<Value> in, out;  // out: the result, then memory for the step alone
  Run run;
};

// Adds what only the step needs to the buffers. Nothing: the call has no kernel here.
std::optional<Step> step_of(Graph& graph, const Call& call);

}  // namespace ringtape::inference
