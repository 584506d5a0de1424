#include "train/model/methods.h"

#include "core/check.h"

namespace ringtape {

std::unique_ptr<nn::Method> make_method(const MethodPlan& plan, const ModelSpec& spec) {
  ModelSpec own = spec;
  own.classes = 0;
  const ModelEntry& model = find_model(plan.backbone.name);
  const ViewOptions& views = plan.views;
  const Shape small{views.small_size, views.small_size, own.image[2]};
  RT_CHECK_AS(UsageError, views.small_count == 0 || model.accepts(own, small), "--small-view-size ", views.small_size,
              ": ", plan.backbone.name, " accepts ",
              model.multiple
                  ? concat("multiples of ", model.multiple(own), " pixels")
                  : concat("only one image size; use a model for any size, such as resnet18, or ", own.image[0]));
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
