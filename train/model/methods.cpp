#include "train/model/methods.h"

#include "autograd/create.h"
#include "autograd/tape.h"
#include "core/registry.h"
#include "nn/batch_norm.h"
#include "nn/linear.h"
#include "nn/mode_guard.h"

namespace ringtape {
namespace {

// The number of features of a backbone.
int64_t feature_count(nn::Module& backbone, const Shape& image) {
  const NoGrad no_grad;
  const nn::ModeGuard evaluating(backbone, false);
  return backbone(zeros({1, image[0], image[1], image[2]})).dim(1);
}

}  // namespace

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
  const nn::MakeModule make = [&] { return model.make(own); };
  const RandomState drawn = default_generator().state();
  const int64_t features = feature_count(*make(), own.image);
  default_generator().set_state(drawn);
  auto out = nn::find_method(plan.method.name).make({make, features, plan.sync_bn}, plan.method.chosen());
  if (plan.probe) out->add_probe(features, spec.classes);
  return out;
}

}  // namespace ringtape
