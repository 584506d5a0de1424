#include "train/optim/optimizers.h"

#include "train/optim/adam.h"
#include "train/optim/lars.h"
#include "train/optim/muon.h"
#include "train/optim/sgd.h"

namespace ringtape {
namespace {

template <class Rule> std::unique_ptr<Optimizer> make(FlatParameters& parameters, const Settings& settings) {
  return std::make_unique<Rule>(parameters, settings.as<typename Rule::Options>());
}

}  // namespace

static std::vector<OptimizerEntry>& registered_optimizers() {
  static std::vector<OptimizerEntry> all = {
      {.name = "sgd", .settings = Sgd::Options{.momentum = 0.9}, .make = make<Sgd>},
      {.name = "adam", .settings = Adam::Options{}, .make = make<Adam>},
      {.name = "adamw", .settings = Adam::Options{.decoupled = true}, .make = make<Adam>},
      {.name = "muon", .settings = Muon::Options{}, .make = make<Muon>, .undivided = true},
      {.name = "lars", .settings = Lars::Options{}, .make = make<Lars>},
  };
  return all;
}

std::span<const OptimizerEntry> optimizers() { return registered_optimizers(); }
RegisterOptimizer::RegisterOptimizer(const OptimizerEntry& entry) { add_entry(registered_optimizers(), entry); }

std::unique_ptr<Optimizer> make_optimizer(const Selection& optimizer, FlatParameters& parameters) {
  return find_entry(optimizers(), optimizer.name, "optimizer").make(parameters, optimizer.chosen());
}

}  // namespace ringtape
