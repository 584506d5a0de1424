// The components of a run, in the order of --help.
#include <algorithm>

#include "nn/ssl/method.h"
#include "train/model/models.h"
#include "train/settings/option_walk.h"

namespace ringtape {
namespace {

// The options of all components of one kind.
void visit_components(OptionWalk& f, OptionGroup group, const char* kind, Selection& components,
                      const std::vector<std::string>& chosen) {
  group.kind = kind;
  for (Selection::Part& component : components.parts) {
    group.name = component.name;
    group.is_chosen = std::ranges::count(chosen, component.name) > 0;
    f.group = group;
    component.settings.walk(f);
  }
}

std::string model_of(const TrainOptions& o) {
  if (!o.model.name.empty()) return o.model.name;
  for (const DatasetEntry& entry : datasets())
    if (entry.name == o.data.set.name) return entry.model;
  return "";
}

void visit_model(OptionWalk& f, TrainOptions& o) {
  f.group = {"Model"};
  f("model", o.model.name,
    {.help = "network to train",
     .unit = "NAME",
     .choices = [] { return names_of(models()); },
     .automatic = "mlp; resnet18 for imagefolder",
     .scope = FieldScope::weights,
     .selects = true});
  f("weights", o.weights,
    {.help = "fine-tune: begin with the weights of a run, a checkpoint or a file, also PyTorch's; --model and its "
             "settings are then theirs, and a last layer that does not fit is random",
     .unit = "RUN|FILE",
     .automatic = "random ones",
     .may_change = true});
  f("weights-key", o.weights_key,
    {.help = "which of several sets of weights in a file: PyTorch's members of that name, such as state_dict_ema, or "
             "tensors whose names begin with it; of a run or checkpoint with --ema, `model` are the weights without "
             "averaging, `ema` the average",
     .unit = "NAME",
     .automatic = "in a checkpoint the average, in other files the likeliest",
     .may_change = true,
     .evaluates = true});
  visit_components(f, {.title = "Model", .in_step = true}, "model", o.model, {model_of(o)});
}

void visit_method(OptionWalk& f, TrainOptions& o) {
  const OptionGroup group{.title = "Method", .learning = Learning::self_supervised, .in_step = true};
  f.group = group;
  f("method", o.method.name,
    {.help = "self-supervised method",
     .unit = "NAME",
     .choices = [] { return names_of(nn::methods()); },
     .automatic = "none",
     .selects = true});
  visit_components(f, group, "method", o.method, {o.method.name});
}

}  // namespace

TrainOptions::TrainOptions() : model(models()), method(nn::methods()) {}
TrainOptions::TrainOptions(const TrainOptions&) = default;
TrainOptions::TrainOptions(TrainOptions&&) noexcept = default;
TrainOptions& TrainOptions::operator=(const TrainOptions&) = default;
TrainOptions& TrainOptions::operator=(TrainOptions&&) noexcept = default;
TrainOptions::~TrainOptions() = default;

void visit(OptionWalk& f, TrainOptions& o) {
  visit_model(f, o);
  visit_method(f, o);
  f.group = {.title = "Views", .learning = Learning::self_supervised, .in_step = true};
  visit(f, o.views);
  f.group = {"Evaluation", Learning::self_supervised};
  visit(f, o.evaluation);
  f.group = {"Data"};
  visit(f, o.data);
  visit_components(f, {"Data"}, "data", o.data.set, {o.data.set.name});
  f.group = {"Augmentation", Learning::supervised};
  visit(f, o.augmentation);
  visit(f, o.changes);
  f.group = {"Transforms"};
  visit(f, o.transforms);
  visit_components(f, {"Transforms"}, "transform", o.transforms.chosen.settings, o.transforms.chosen.chosen());
  f.group = {"Training"};
  visit(f, o.trainer);
  visit(f, o.limits);
  f.group = {"Optimizer"};
  visit(f, o.step);
  visit(f, o.parameters);
  visit_components(f, {.title = "Optimizer", .in_step = true}, "optimizer", o.step.optimizer, {o.step.optimizer.name});
  f.group = {"Schedule"};
  visit(f, o.schedule);
  visit_components(f, {"Schedule"}, "schedule", o.schedule.course, {o.schedule.course.name});
  f.group = {"Execution"};
  visit(f, o.execution);
  f.group = {"Parallel"};
  visit(f, o.parallel);
  visit_components(f, {.title = "Strategy", .in_step = true}, "strategy", o.parallel.strategy,
                   {o.parallel.strategy.name});
  visit_components(f, {"Reduction"}, "gradient-reduction", o.parallel.reducer.reduction,
                   {o.parallel.reducer.reduction.name});
  f.group = {"Callbacks"};
  visit(f, o.callbacks);
  visit_components(f, {"Callbacks"}, "callback", o.callbacks.chosen.settings, o.callbacks.chosen.chosen());
  f.group = {"Run"};
  visit(f, o.run);
  visit(f, o.checkpoint);
  visit(f, o.trace);
}

}  // namespace ringtape
