#include "train/inference/predictor.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <string_view>

#include "autograd/ops.h"
#include "autograd/prepared_by_size.h"
#include "autograd/tape.h"
#include "nn/init.h"
#include "train/data/normalize.h"
#include "train/evaluation/features.h"
#include "train/evaluation/test_copies.h"
#include "train/inference/find_weights.h"
#include "train/io/json.h"
#include "train/io/look.h"
#include "train/io/weights_file.h"
#include "train/model/models.h"
#include "train/weights/first_weight.h"
#include "train/weights/trained_on.h"
#include "train/weights/weights.h"

namespace ringtape {

Json to_json(const Predictions& predictions) {
  Json out = Json::list();
  for (const Prediction& each : predictions) out.push_back({{"class", each.name}, {"probability", each.probability}});
  return out;
}

struct Predictor::State {
  State(const std::string& target, const PredictorOptions& options);

  void check(const Tensor& images) const;
  // f of the network for all images, in batches of a limited size.
  Tensor each_batch(const Tensor& images, const std::function<Tensor(const Tensor&)>& f) const;
  nn::Classifier& classifier() const { return ringtape::classifier(*network, model_name); }
  Tensor pixels(const Image& image) const;

  PredictorOptions options;
  std::string weights, model_name;
  TrainedOn known;
  int64_t multiple;         // of sizes that the network accepts; 0: only its own
  bool own_file;            // of this project
  bool classifies = false;  // whether the weights have a last layer
  Tensor table;             // byte_table()
  std::unique_ptr<nn::Module> network;
  PreparedBySize logits, features;
};

static void check_known(const TrainedOn& known, const std::string& weights, bool own_file) {
  const char* const exported =
      own_file ? "`ringtape export RUN --out FILE`"
               : "`ringtape export FILE --model NAME --data imagefolder --data-dir DIR --image-size N --out "
                 "NEW.safetensors`, with the images that it was trained on,";
  RT_CHECK_AS(UsageError, !known.image.empty() && !known.mean.empty(), weights,
              ": does not say of which size its images were, how they were normalised, or what its classes are; ",
              exported, " writes a file that does");
  RT_CHECK_AS(UsageError, known.mean.size() == size_t(known.image[2]), weights, ": its images have ", known.image[2],
              " channels, but are normalised by ", known.mean.size());
}

Predictor::State::State(const std::string& target, const PredictorOptions& o)
    : options(o), logits([this](const Tensor& x) { return (*network)(x); }, o.precision),
      features([this](const Tensor& x) { return classifier().features(x); }, o.precision) {
  const FoundWeights found = find_weights(target, o.weights_key);
  weights = found.weights;
  const SafetensorsHeader header = read_weights_header(weights, found.set);
  known = trained_on(header.metadata, weights);
  own_file = is_own(header.metadata);
  check_known(known, weights, own_file);
  const Selection model = model_of({found.settings});
  const ModelEntry& entry = find_model(model.name);
  model_name = model.name;
  const ModelSpec spec{
      {known.image[0], known.image[1], known.image[2]}, int64_t(known.class_names.size()), model.chosen()};
  multiple = entry.multiple ? entry.multiple(spec) : 0;
  check_first_weight(weights, header, entry, spec, true);
  network = [&] {
    const nn::NoInit read_below;
    return entry.make(spec);
  }();
  const LoadedWeights loaded = load_whole(weights, *network, last_layer_of(*network), found.set);
  RT_CHECK_AS(FormatError, loaded.last_layer || loaded.outputs == 0, weights, ": its last layer has ", loaded.outputs,
              " classes, but ", spec.classes, " have names");
  classifies = loaded.last_layer && spec.classes > 0;
  network->train(false);
  if (o.device != Device{}) nn::move_to(*network, o.device);
  table = byte_table(known.mean, known.deviation, o.device);
}

void Predictor::State::check(const Tensor& images) const {
  const Shape shape{known.image[0], known.image[1], known.image[2]};
  RT_CHECK_AS(DTypeError, images.dtype() == DType::u8 || is_float(images.dtype()),
              "Predictor: expected pixels, u8, or normalised images, floating-point, got ", images.dtype());
  const auto size_fits = [&](int axis) {
    return images.dim(axis) > 0 &&
           (multiple > 0 ? images.dim(axis) % multiple == 0 : images.dim(axis) == shape[axis - 1]);
  };
  const bool fits = images.rank() == 4 && images.dim(3) == shape[2] && size_fits(1) && size_fits(2);
  const auto size = [&](const char* name, int64_t own) { return multiple > 0 ? name : std::to_string(own); };
  RT_CHECK_AS(ShapeError, fits, "Predictor: expected images (N, ", size("H", shape[0]), ", ", size("W", shape[1]), ", ",
              shape[2], ")", multiple > 1 ? concat(", H and W multiples of ", multiple) : "", ", got ", images.shape());
}

Tensor Predictor::State::each_batch(const Tensor& images, const std::function<Tensor(const Tensor&)>& f) const {
  check(images);
  const NoGrad no_grad;
  Tensors out;
  const int64_t batch = eval_batch(images.shape().without(0)), n = images.dim(0);
  for (int64_t at = 0; at < n || at == 0; at += batch) {
    Tensor x = to(contiguous(slice(images, 0, at, std::min(at + batch, n))), options.device);
    if (x.dtype() == DType::u8) x = normalized(x, table);
    out.push_back(to(cast(f(cast(x, DType::f32)), DType::f32), Device{}));
  }
  return contiguous(concat(out));
}

Tensor Predictor::State::pixels(const Image& image) const {
  const int64_t channels = known.image[2];
  RT_CHECK_AS(UsageError, channels == 1 || channels == 3, weights, ": was trained on images of ", channels,
              " channels; files are read as 1 or 3");
  Tensor out({1, image.size.height, image.size.width, channels}, DType::u8);
  copy_pixels(image, channels, out.data<uint8_t>());
  return out;
}

Predictor::Predictor(const std::string& weights, const PredictorOptions& options)
    : state_(std::make_unique<const State>(weights, options)) {}
Predictor::Predictor(Predictor&&) noexcept = default;
Predictor& Predictor::operator=(Predictor&&) noexcept = default;
Predictor::~Predictor() = default;

Tensor Predictor::read(const std::string& path) const {
  RT_CHECK_AS(IoError, type_at(path) != std::filesystem::file_type::not_found, "there is no image '", path, "'");
  RT_CHECK_AS(IoError, type_at(path) == std::filesystem::file_type::regular, path, ": not a file");
  const TrainedOn& known = state_->known;
  return state_->pixels(read_image_as(path, {known.image[0], known.image[1]}, known.reading));
}

Tensor Predictor::decode(std::span<const std::byte> file, const std::string& name) const {
  const TrainedOn& known = state_->known;
  const std::string_view content(reinterpret_cast<const char*>(file.data()), file.size());
  return state_->pixels(decode_image_as(content, name, {known.image[0], known.image[1]}, known.reading));
}

Tensor Predictor::logits(const Tensor& images) const {
  (void)classes();
  return state_->each_batch(images, [this](const Tensor& x) {
    return mean_over_copies(state_->options.copies, x, [this](const Tensor& copy) { return state_->logits(copy); });
  });
}

Tensor Predictor::features(const Tensor& images) const {
  (void)state_->classifier();  // throws if there is none
  return state_->each_batch(images, [this](const Tensor& x) { return state_->features(x); });
}

static Predictions best_of(std::span<const double> probabilities, size_t top, const std::vector<std::string>& names) {
  std::vector<size_t> best(probabilities.size());
  std::iota(best.begin(), best.end(), 0);
  std::ranges::stable_sort(best, std::greater(), [&](size_t i) { return probabilities[i]; });
  best.resize(std::min(top, best.size()));
  Predictions out;
  for (const size_t i : best) out.push_back({int64_t(i), names[i], probabilities[i]});
  return out;
}

std::vector<Predictions> Predictor::operator()(const Tensor& images, int64_t top) const {
  RT_CHECK_AS(UsageError, top > 0, "Predictor: expected at least one class, got ", top);
  const std::vector<std::string>& names = classes();
  const NoGrad no_grad;
  const Tensor all = softmax(cast(logits(images), DType::f64));
  std::vector<Predictions> out;
  for (int64_t i = 0; i < all.dim(0); ++i) {
    const std::span<const double> row = all.span<double>().subspan(size_t(i) * names.size(), names.size());
    RT_CHECK_AS(Error, std::ranges::all_of(row, [](double x) { return std::isfinite(x); }), state_->weights,
                ": the outputs for image ", i, " are not finite");
    out.push_back(best_of(row, size_t(top), names));
  }
  return out;
}

Predictions Predictor::operator()(const std::string& path, int64_t top) const {
  return (*this)(read(path), top).front();
}

Predictions Predictor::operator()(std::span<const std::byte> file, int64_t top) const {
  return (*this)(decode(file), top).front();
}

const std::vector<std::string>& Predictor::classes() const {
  const char* const otherwise = "; train a last layer with images that have labels: ringtape train --weights ";
  RT_CHECK_AS(UsageError, !state_->known.class_names.empty(), state_->weights, ": knows no classes", otherwise,
              state_->weights, "; ringtape embed writes features");
  RT_CHECK_AS(UsageError, state_->classifies, state_->weights, ": has no last layer", otherwise, state_->weights,
              "; ringtape embed writes features");
  return state_->known.class_names;
}

Shape Predictor::image_shape() const {
  const std::vector<int64_t>& image = state_->known.image;
  return {image[0], image[1], image[2]};
}

const std::string& Predictor::model_name() const { return state_->model_name; }
const std::string& Predictor::weights_file() const { return state_->weights; }

}  // namespace ringtape
