#include "train/model/methods.h"

#include "core/check.h"

namespace ringtape {

std::unique_ptr<nn::Method> make_method(const MethodPlan& plan, const ModelSpec& spec) {
  ModelSpec own = spec;
  own.classes = 0;
  const ModelEntry& model = find_model(plan.backbone.name);
  const ViewOptions& views = plan.views;
  const bool one_size =
      views.small_count == 0 || Shape{views.small_size, views.small_size} == Shape{own.image[0], own.image[1]};
  RT_CHECK_AS(UsageError, one_size || model.any_size, "--small-views ", views.small_count, ": ", plan.backbone.name,
              " accepts only one image size; use a model for any size, such as resnet18, or --small-view-size ",
              own.image[0]);
  RT_CHECK_AS(UsageError, model.features, "--model ", plan.backbone.name,
              ": does not say how many features it has (ModelEntry::features), which a method needs");
  const int64_t features = model.features(own);
  const auto make_backbone = [&] {
    auto out = model.make(own);
    if (plan.load) plan.load(*out);
    return out;
  };
  const nn::Backbone backbone{.make = make_backbone, .features = features, .sync_bn = plan.sync_bn};
  auto out = nn::find_method(plan.method.name).make(backbone, plan.method.chosen());
  if (plan.probe) out->add_probe(features, spec.classes);
  return out;
}

}  // namespace ringtape
