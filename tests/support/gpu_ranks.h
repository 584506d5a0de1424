#pragma once
#include <cstdint>
#include <vector>

#include "autograd/create.h"
#include "autograd/ops.h"
#include "comm/process_group.h"
#include "nn/nn.h"
#include "tests/support/support.h"
#include "train/loop/step.h"
#include "train/settings/options.h"

// What ranks on GPUs do in the tests of several transports.
namespace ringtape::test {

inline constexpr int64_t kWeightsOfSteps = 20 * 90 + 90 + 90 * 5 + 5;

// Five steps of ddp of a small network on the group's device: its weights. deterministic: sums are in the order of the
// ranks. graph: the last ones are repeated.
inline std::vector<double> weights_after_steps(comm::ProcessGroup& group, bool deterministic, bool graph = false) {
  const Device device = group.transport().device();
  manual_seed(3);
  nn::Sequential model;
  model.add<nn::Linear>(20, 90).add<nn::ReLU>().add<nn::Linear>(90, 5);
  nn::move_to(model, device);
  TrainOptions o;
  o.execution.deterministic = deterministic, o.parallel.strategy.name = "ddp";
  Step step(model, cross_entropy_of(model, nullptr, 0), o.step, o.execution, group, o.parallel);
  if (graph) step.record_steps();
  for (int i = 0; i < 5; ++i) {
    manual_seed(uint64_t(10 * i + group.rank()));
    const Tensor y = from_host(std::vector<int64_t>{i, 1, 2}, {3}, device);
    step.run(to(randn({3, 20}), device), y, 0.01, {}, {3 * group.size()});
  }
  std::vector<double> all;
  for (const nn::Named& p : nn::named_parameters(model))
    for (const double v : values(p.tensor->detach())) all.push_back(v);
  return all;
}

}  // namespace ringtape::test
