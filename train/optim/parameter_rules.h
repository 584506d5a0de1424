#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/fields.h"
#include "nn/module.h"

namespace ringtape {

// How an optimizer trains one parameter: PyTorch's group of parameters.
struct ParameterRule {
  double lr_factor = 1;                 // of the rate of each step
  std::optional<double> fixed_lr = {};  // instead: always this rate
  double decay_factor = 1;              // of the optimizer's weight decay
  bool operator==(const ParameterRule&) const = default;
};

// Which parameters are trained, and which otherwise than the rest.
struct ParameterOptions {
  std::string freeze = {};      // patterns of names, separated by commas; "backbone": all but the last layer
  double head_lr = 0;           // of the last layer, where all others have lr; 0: lr
  double layer_decay = 1;       // factor of the rate from each layer to the one before it
  double bias_lr = 0;           // of parameters of one axis, norms and biases, where the rest has lr; 0: lr
  bool no_decay_norms = false;  // no weight decay of parameters of one axis
};
void visit(Fields& f, ParameterOptions& o);

// Whether a parameter of that name is frozen. `head`: the name of the model's last layer; empty: it has none. Throws
// UsageError for a pattern that fits no parameter, with the nearest names, and if none is left.
std::function<bool(const std::string& name)> frozen_by(const std::string& patterns, nn::Module& model,
                                                       const std::string& head);

// For each of all_parameters(), how many layers it is away from the last one, which is the head. A layer is a block,
// "layer1.0" of layer1.0.conv1.weight, or what has a name of its own, "conv1"; norms belong to the layer before them.
std::vector<int64_t> layer_depths(nn::Module& model, const std::string& head);

// Of each of named_parameters(). `lr`: where head_lr and bias_lr are others. Throws UsageError for --head-lr without a
// head, and for both without lr.
std::vector<ParameterRule> rules_of(const ParameterOptions& options, nn::Module& model, const std::string& head,
                                    double lr);

}  // namespace ringtape
