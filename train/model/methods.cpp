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

std::unique_ptr<nn::Method> make_method(const TrainOptions& options, const ModelSpec& backbone) {
  const nn::MethodEntry& entry = nn::find_method(options.method.name);
  ModelSpec spec = backbone;
  spec.classes = 0;
  const ModelEntry& model = find_model(options.model.name);
  const ViewOptions& views = options.views;
  const bool one_size =
      views.small_count == 0 || Shape{views.small_size, views.small_size} == Shape{spec.image[0], spec.image[1]};
  RT_CHECK_AS(UsageError, one_size || model.any_size, "--small-views ", views.small_count, ": ", options.model.name,
              " accepts only one image size; use a model for any size, such as resnet18, or --small-view-size ",
              spec.image[0]);
  const nn::MakeModule make = [&] { return model.make(spec); };
  const RandomState drawn = default_generator().state();
  const int64_t features = feature_count(*make(), spec.image);
  default_generator().set_state(drawn);
  auto out = entry.make({make, features, options.parallel.sync_bn}, options.method.chosen());
  if (options.evaluation.online_probe) out->add_probe(features, backbone.classes);
  return out;
}

void check_pretraining(const TrainOptions& o, int ranks) {
  const nn::MethodEntry& entry = nn::find_method(o.method.name);
  const int64_t batch = o.trainer.batch_size;
  RT_CHECK_AS(UsageError, batch >= 2 * ranks, "--batch-size ", batch, ": ", entry.name,
              " compares the images of a batch; each of ", ranks, ranks == 1 ? " rank" : " ranks", " needs at least 2");
  RT_CHECK_AS(UsageError, batch % ranks == 0, "--batch-size ", batch, ": not a multiple of the ", ranks,
              " ranks; each needs the same number of images");
  RT_CHECK_AS(UsageError, o.step.accumulate == 1, "--accumulate ", o.step.accumulate, ": ", entry.name,
              " compares all images of a batch, so that it cannot be computed in parts; use a smaller --batch-size, or "
              "more ranks");
  const ViewOptions& views = o.views;
  RT_CHECK_AS(UsageError, views.count == 2 || entry.any_views, "--views ", views.count, ": ", entry.name,
              " compares exactly two views");
  RT_CHECK_AS(UsageError, views.small_count == 0 || entry.any_views, "--small-views ", views.small_count, ": ",
              entry.name, " compares exactly two views");
  (void)views_of(views);
  const int64_t parts = ranks * o.parallel.own_devices();
  RT_CHECK_AS(UsageError, batch % parts == 0, "--batch-size ", batch, ": not a multiple of the ", parts, " devices");
  entry.check_batches(o.method.chosen(),
                      {.images = batch, .ranks = ranks, .devices = parts, .sync_bn = o.parallel.sync_bn});
}

}  // namespace ringtape
