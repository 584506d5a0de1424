#include "train/optim/parameter_rules.h"

#include <fnmatch.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "core/check.h"
#include "core/parse.h"
#include "core/registry.h"

namespace ringtape {

void visit(Fields& f, ParameterOptions& o) {
  f("freeze", o.freeze,
    {.help =
         "parameters that are not trained: patterns of names such as conv1.*,layer1.*, or backbone: all but the last "
         "layer; their BatchNorms use running statistics",
     .unit = "PATTERN,...",
     .automatic = "none",
     .with_labels = true});
  f("head-lr", o.head_lr,
    {.help = "peak learning rate of the last layer; all others have --lr",
     .unit = "X",
     .range = kAboveZero,
     .automatic = "--lr",
     .with_labels = true});
  f("layer-decay", o.layer_decay,
    {.help = "factor of the learning rate from each layer, or block of layers, to the one before it; the last one has "
             "1",
     .unit = "X",
     .range = {.low = 0, .high = 1, .above_low = true},
     .with_labels = true});
  f("bias-lr", o.bias_lr,
    {.help = "peak learning rate of norms and biases (parameters of one axis), also those of the last layer; each of "
             "their steps has the weight decay that it has at --lr",
     .unit = "X",
     .range = kAboveZero,
     .automatic = "--lr",
     .with_labels = true});
  f("no-decay-norms", o.no_decay_norms, {.help = "no weight decay of norms and biases: parameters of one axis"});
}

namespace {

bool is_below(const std::string& name, const std::string& module) { return name.starts_with(module + "."); }

bool fits(const std::string& pattern, const std::string& name) {
  return is_below(name, pattern) || ::fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
}

// The first `words` words of a name.
std::string beginning(const std::string& name, int64_t words) {
  size_t at = 0;
  for (; words > 0 && at != std::string::npos; --words) at = name.find('.', at + 1);
  return name.substr(0, at);
}

// The names whose beginnings are fewest changes away from a pattern.
std::string nearest_names(const std::string& pattern, const std::vector<nn::Named>& all) {
  constexpr size_t kShown = 3;
  const std::string plain = pattern.ends_with(".*") ? pattern.substr(0, pattern.size() - 2) : pattern;
  const int64_t words = std::ranges::count(plain, '.') + 1;
  std::vector<std::pair<int, std::string>> near;
  for (const nn::Named& p : all) near.emplace_back(edit_distance(plain, beginning(p.name, words)), p.name);
  std::ranges::stable_sort(near, {}, &std::pair<int, std::string>::first);
  std::string out;
  for (size_t i = 0; i < std::min(near.size(), kShown); ++i) out += concat(i > 0 ? ", " : "", near[i].second);
  return out;
}

// "layer1.0" of "layer1.0.conv1.weight": the path to the first number; else the first word.
std::string block_of(const std::string& name) {
  for (size_t begin = 0, dot; (dot = name.find('.', begin)) != std::string::npos; begin = dot + 1)
    if (name.find_first_not_of("0123456789", begin) == dot) return name.substr(0, dot);
  return name.substr(0, name.find('.'));
}

}  // namespace

std::function<bool(const std::string& name)> frozen_by(const std::string& patterns, nn::Module& model,
                                                       const std::string& head) {
  const std::vector<nn::Named> all = nn::all_parameters(model);
  const std::vector<std::string> words = split_text(patterns);
  const auto is_frozen = [words, head](const std::string& name) {
    return std::ranges::any_of(words, [&](const std::string& w) {
      return w == "backbone" && !head.empty() ? !is_below(name, head) : fits(w, name);
    });
  };
  for (const std::string& w : words) {
    const bool any = (w == "backbone" && !head.empty()) ||
                     std::ranges::any_of(all, [&](const nn::Named& p) { return fits(w, p.name); });
    RT_CHECK_AS(UsageError, any, "--freeze: '", w, "' fits no parameter; the nearest names are ",
                nearest_names(w, all));
  }
  RT_CHECK_AS(UsageError, !std::ranges::all_of(all, [&](const nn::Named& p) { return is_frozen(p.name); }), "--freeze ",
              patterns, ": no parameter is left to be trained");
  return is_frozen;
}

std::vector<int64_t> layer_depths(nn::Module& model, const std::string& head) {
  const std::vector<nn::Named> all = nn::all_parameters(model);
  std::map<std::string, bool> has_matrix;
  for (const nn::Named& p : all) has_matrix[block_of(p.name)] |= p.tensor->rank() > 1;
  std::map<std::string, int64_t> place;  // of each block
  int64_t last = -1;
  std::vector<int64_t> out;
  for (const nn::Named& p : all) {
    const std::string block = block_of(p.name);
    if (!head.empty() && is_below(p.name, head)) {
      out.push_back(-1);
      continue;
    }
    if (!place.contains(block)) place[block] = last = last < 0 || has_matrix[block] ? last + 1 : last;
    out.push_back(place[block]);
  }
  for (int64_t& layer : out) layer = layer < 0 ? 0 : last - layer + (head.empty() ? 0 : 1);
  return out;
}

std::vector<ParameterRule> rules_of(const ParameterOptions& options, nn::Module& model, const std::string& head,
                                    double lr) {
  RT_CHECK_AS(UsageError, options.head_lr == 0 || !head.empty(), "--head-lr: this model has no last layer");
  RT_CHECK_AS(UsageError, options.head_lr == 0 || lr > 0,
              "--head-lr: needs a --lr above 0, that of all other layers; to train only the last one, use --freeze "
              "backbone");
  RT_CHECK_AS(UsageError, options.bias_lr == 0 || lr > 0,
              "--bias-lr: needs a --lr above 0, that of all other parameters");
  const std::vector<nn::Named> all = nn::all_parameters(model);
  const std::vector<int64_t> depths = layer_depths(model, head);
  std::vector<ParameterRule> out;
  for (size_t i = 0; i < all.size(); ++i) {
    const nn::Named& p = all[i];
    if (!p.tensor->node()) continue;
    const bool in_head = !head.empty() && is_below(p.name, head), norm = p.tensor->rank() <= 1;
    const bool apart = norm && options.bias_lr > 0;
    const double own_lr = apart ? options.bias_lr : in_head && options.head_lr > 0 ? options.head_lr : lr;
    const double factor = own_lr == lr ? 1 : own_lr / lr;
    out.push_back({.lr_factor = factor * std::pow(options.layer_decay, double(depths[i])),
                   .decay_factor = norm && options.no_decay_norms ? 0
                                   : apart                        ? 1 / factor
                                                                  : 1});
  }
  return out;
}

}  // namespace ringtape
