#include "train/methods.h"

#include <algorithm>

#include "autograd/create.h"
#include "autograd/tape.h"
#include "nn/batch_norm.h"
#include "nn/linear.h"
#include "train/suggest.h"

namespace ringtape {
namespace {

const nn::MethodEntry& find_method(const std::string& name) {
  std::vector<std::string> known;
  for (const nn::MethodEntry& entry : nn::methods()) {
    if (name == entry.name) return entry;
    known.emplace_back(entry.name);
  }
  throw UsageError(unknown("method", name, known));
}

nn::MethodOptions method_options(const TrainOptions& o) {
  const auto norm = [](const std::string& name) { return name == "method" ? std::string() : name; };
  nn::MethodOptions out;
  out.projection = {o.projection_hidden, o.projection_dim, o.projection_layers, norm(o.projection_norm), o.head_bias};
  out.prediction = {o.prediction_hidden, 0, 0, norm(o.prediction_norm), o.head_bias};
  out.temperature = o.temperature;
  out.momentum = o.momentum_encoder, out.final_momentum = o.momentum_encoder_end;
  out.queue = o.queue, out.queue_per_view = o.queue_per_view, out.enqueue_between = o.enqueue_between;
  out.bn_splits = o.sync_bn ? 1 : o.bn_splits;
  out.lambda = o.barlow_lambda, out.loss_scale = o.loss_scale;
  out.unbiased = o.barlow_statistics == "unbiased", out.exact = o.barlow_statistics == "exact";
  out.prototypes = o.prototypes, out.epsilon = o.sinkhorn_epsilon, out.iterations = o.sinkhorn_iterations;
  out.freeze_epochs = o.freeze_prototypes, out.queue_epoch = o.queue_epoch;
  return out;
}

// What comes out of a backbone for an image.
int64_t feature_count(nn::Module& backbone, const Shape& image) {
  const NoGrad no_grad;
  backbone.train(false);
  const Tensor y = backbone(zeros({1, image[0], image[1], image[2]}));
  backbone.train(true);
  return y.dim(1);
}

}  // namespace

std::unique_ptr<nn::Method> make_method(const TrainOptions& options, const ModelSpec& backbone) {
  const nn::MethodEntry& entry = find_method(options.method);
  ModelSpec spec = backbone;
  spec.classes = 0;
  const ModelEntry& model = find_model(options.model);
  const nn::MakeModule make = [&] { return model.make(spec); };
  const RandomState drawn = default_generator().state();
  const int64_t features = feature_count(*make(), spec.image);
  default_generator().set_state(drawn);
  auto out = entry.make(make, features, method_options(options));
  if (options.online_probe) out->add_probe(features, backbone.classes);
  return out;
}

std::vector<std::string> all_methods() {
  std::vector<std::string> known, out;
  for (const nn::MethodEntry& entry : nn::methods()) known.emplace_back(entry.name);
  for (const char* name : {"moco", "simclr", "simsiam", "barlow_twins", "byol", "swav"})
    if (std::erase(known, name)) out.emplace_back(name);
  out.insert(out.end(), known.begin(), known.end());
  return out;
}

bool can_gather(const std::string& method) {
  nn::MethodOptions small;
  small.projection.hidden = small.projection.out = small.prediction.hidden = 1;
  const RandomState drawn = default_generator().state();
  const bool out = find_method(method).make([] { return std::make_unique<nn::Linear>(1, 1); }, 1, small)->can_gather();
  default_generator().set_state(drawn);
  return out;
}

std::vector<ViewAugmentation> views_of(const TrainOptions& o) {
  ViewAugmentation first;
  first.crop_low = o.crop_low, first.crop_high = o.crop_high;
  first.flip = o.view_flip;
  first.jitter = o.jitter;
  first.brightness = o.brightness, first.contrast = o.contrast, first.saturation = o.saturation, first.hue = o.hue;
  first.gray = o.gray;
  first.blur = o.blur;
  std::vector<ViewAugmentation> out(size_t(o.views), first);
  if (o.blur_second >= 0) out[1].blur = o.blur_second;
  out[1].solarize = o.solarize_second;
  ViewAugmentation small = first;
  small.crop_low = o.small_crop_low, small.crop_high = o.small_crop_high;
  small.size = o.small_view_size;
  out.insert(out.end(), size_t(o.small_views), small);
  return out;
}

void check_method_name(const std::string& name) { (void)find_method(name); }

void check_pretraining(const TrainOptions& o, int ranks) {
  RT_CHECK_AS(UsageError, o.batch_size >= 2 * ranks, "--batch-size ", o.batch_size, ": ", o.method,
              " compares the images of a batch; each of ", ranks, ranks == 1 ? " rank" : " ranks", " needs 2 at least");
  RT_CHECK_AS(UsageError, o.batch_size % ranks == 0, "--batch-size ", o.batch_size, ": not a multiple of the ", ranks,
              " ranks; outputs are compared in equal parts");
  RT_CHECK_AS(UsageError, o.accumulate == 1, "--accumulate ", o.accumulate, ": ", o.method,
              " compares the images of a batch, which parts of it would not be; use a smaller --batch-size, or more ranks");
  RT_CHECK_AS(UsageError, !o.gather_distributed || ranks > 1,
              "--gather-distributed: there is one rank, and nothing to gather; leave it out, or use "
              "--strategy ddp --devices N");
  RT_CHECK_AS(UsageError, o.views == 2 || o.method == "swav", "--views ", o.views, ": ", o.method, " compares two views");
  RT_CHECK_AS(UsageError, o.small_views == 0 || o.method == "swav", "--small-views ", o.small_views, ": ", o.method, " compares two views");
  RT_CHECK_AS(UsageError, o.small_crop_low <= o.small_crop_high, "--small-crop-low ", o.small_crop_low, ": above --small-crop-high ",
              o.small_crop_high);
  RT_CHECK_AS(UsageError, o.crop_low <= o.crop_high, "--crop-low ", o.crop_low, ": above --crop-high ", o.crop_high);
  const bool replicas = o.strategy == "dp" || o.strategy == "ddp2";
  const int64_t parts = ranks * (replicas ? o.devices : 1), part = o.batch_size / parts;
  RT_CHECK_AS(UsageError, o.batch_size % parts == 0, "--batch-size ", o.batch_size, ": not a multiple of the ", parts, " devices");
  RT_CHECK_AS(UsageError, o.bn_splits == 1 || o.sync_bn || part % o.bn_splits == 0, "--bn-splits ", o.bn_splits, ": does not divide the ",
              part, " images that a device has of a batch");
}

}  // namespace ringtape
