#include "train/cli/trained.h"

#include <algorithm>
#include <filesystem>
#include <memory>

#include "autograd/create.h"
#include "autograd/ops.h"
#include "autograd/tape.h"
#include "core/log.h"
#include "nn/init.h"
#include "train/cli/common.h"
#include "train/data/files/encoded_images.h"
#include "train/data/sets/shapes.h"
#include "train/inference/find_weights.h"
#include "train/io/file.h"
#include "train/io/look.h"
#include "train/io/weights_file.h"
#include "train/loop/exported.h"
#include "train/model/models.h"
#include "train/weights/first_weight.h"
#include "train/weights/names.h"
#include "train/weights/weights.h"

namespace ringtape::cli {
namespace {

// Maximum number of images that a file's metadata can ask for; more needs a flag.
constexpr int64_t kMaxGenerated = 200'000;

// Throws UsageError if a file of weights asks for more, and no flag confirms it.
void check_generated(const TrainOptions& options, const std::string& file, const Invocation& invocation) {
  const auto& shapes = options.data.set.of("shapes").as<ShapesOptions>();
  for (const auto& [flag, size] : {std::pair{"train-size", shapes.train_size}, {"test-size", shapes.test_size}})
    RT_CHECK_AS(UsageError, size <= kMaxGenerated || invocation.flag(flag), file, ": asks for ", with_commas(size),
                " generated images; if this is intended, confirm it with --", flag, " ", size);
}

bool has_data_flag(const Invocation& invocation) {
  const std::vector<Flag> flags = option_flags(Use::load);
  return std::ranges::any_of(flags, [&](const Flag& flag) {
    return flag.group.starts_with("Data") && (invocation.flag(flag.name) || invocation.has(flag.name));
  });
}

}  // namespace

TrainOptions options_of(const Invocation& invocation, Given settings) {
  TrainOptions out;
  settings.leave_out({"weights", "weights-key", "freeze", "method", "device", "threads", "limit-eval-batches"});
  apply_flags(out, invocation, {settings});
  return out;
}

Trained find_trained(const Invocation& invocation, const std::string& command) {
  RT_CHECK_AS(UsageError, invocation.positionals.size() == 1, command,
              ": name a run, a checkpoint or a file of weights: ringtape ", command, " RUN|CHECKPOINT|FILE");
  Trained out;
  out.command = command;
  const std::string* const key = invocation.flag("weights-key");
  auto [weights, set, settings] = find_weights(invocation.positionals[0], key ? *key : "");
  out.weights = weights, out.set = set;
  TrainOptions of_run;
  apply_settings(of_run, {settings});  // it is read as a whole
  if (settings.file == weights) check_generated(of_run, weights, invocation);
  out.options = options_of(invocation, settings);
  const EvaluationOptions& judged = out.judged = of_run.evaluation;  // features learnt without labels are tested alike
  if (command == "evaluate" && !judged.data.empty() && !invocation.flag("data") && !invocation.flag("data-dir"))
    out.options.data.set.name = judged.data, out.options.data.dir = judged.dir;
  out.options.data.val_size = 0, out.options.weights_key.clear();
  out.header = read_weights_header(out.weights, out.set);
  out.data = trained_on(out.header.metadata, out.weights);
  out.new_images = is_own(out.header.metadata) ? has_data_flag(invocation) : invocation.flag("data") != nullptr;
  if (invocation.flag("normalize")) out.data.mean.clear(), out.data.deviation.clear();
  out.check_first({{1, 1, 1}, 1, out.options.model.chosen()}, false);
  return out;
}

void Trained::check_first(const ModelSpec& spec, bool image_known) const {
  check_first_weight(weights, header, find_model(options.model.name), spec, image_known);
}

Beginning Trained::beginning() const {
  return {.data = data,
          .check = [this](const ModelSpec& spec) { check_first(spec, true); },
          .train = train,
          .test = test,
          .labels = command == "evaluate"};
}

namespace {

// Files that are not there, and how they were read.
class NoFiles final : public EncodedImages {
 public:
  explicit NoFiles(const ImageReading& reading) : reading_(reading) {}
  int64_t size() const override { return 0; }
  std::string name(int64_t) const override { return {}; }
  int64_t bytes(int64_t) const override { return 0; }
  int64_t changed(int64_t) const override { return 0; }
  std::string read(int64_t) const override { return {}; }
  std::string path(int64_t) const override { return {}; }
  ImageReading reading() const override { return reading_; }

 private:
  ImageReading reading_;
};

Dataset one_image(const std::string& name, const std::string& source, const Shape& image, int64_t classes) {
  return {.name = name,
          .source = source,
          .images = zeros({1, image[0], image[1], image[2]}, DType::u8),
          .labels = zeros({1}, DType::i64),
          .classes = int(classes),
          .mean = {},
          .deviation = {}};
}

// The network's names and its last layer's.
struct NetworkNames {
  NetworkNames(const Trained& trained, const Shape& image) {
    const nn::NoInit names_alone;
    const auto network = find_model(trained.options.model.name).make({image, 1, trained.options.model.chosen()});
    last = last_layer_of(*network);
    for (const NamedTensor& t : weights_of(*network)) own.push_back(t.name);
  }
  std::string last;
  std::vector<std::string> own;
};

std::optional<Dataset> image_in_own_file(const Trained& trained) {
  const TrainedOn& known = trained.data;
  if (trained.new_images || known.image.empty() || known.mean.size() != size_t(known.image[2])) return {};
  const Shape image{known.image[0], known.image[1], known.image[2]};
  const bool classifies = trained.header.find(NetworkNames(trained, image).last + ".weight");
  if (classifies && known.class_names.empty()) return {};
  const Selection& set = trained.options.data.set;
  Dataset out = one_image(set.name, trained.weights, image, int64_t(known.class_names.size()));
  out.mean = known.mean, out.deviation = known.deviation, out.class_names = known.class_names;
  Settings settings = set.chosen();
  if (find_field(settings, "image-size")) out.encoded = std::make_shared<NoFiles>(known.reading);
  return out;
}

}  // namespace

std::optional<Dataset> image_in_file(const Trained& trained) {
  constexpr int64_t kSmall = 32, kImageNet = 224, kMaxClasses = 1'000'000;
  if (is_own(trained.header.metadata)) return image_in_own_file(trained);
  if (trained.new_images) return {};
  const auto [last, own] = NetworkNames(trained, {kSmall, kSmall, 3});
  std::vector<std::string> file;
  for (const TensorEntry& t : trained.header.tensors) file.push_back(t.name);
  const NamesInFile names = find_names(file, own, last);
  const auto shape_of = [&](const std::string& name) {
    const auto found = names.of.find(name);
    return found == names.of.end() ? std::vector<int64_t>() : trained.header.find(found->second)->shape;
  };
  const std::vector<int64_t> first = own.empty() ? std::vector<int64_t>() : shape_of(own[0]);
  if (first.size() != 4) return {};
  const std::vector<int64_t> head = shape_of(last + ".weight");
  const int64_t side = first[2] >= 7 ? kImageNet : kSmall, classes = head.size() == 2 ? head[0] : 0;
  RT_CHECK_AS(FormatError, classes <= kMaxClasses, trained.weights, ": its last layer has ", classes,
              " classes; at most ", kMaxClasses, " are expected");
  return one_image("images of another program", trained.weights, {side, side, first[1]}, classes);
}

Beginning Trained::beginning_with(const Dataset& images) const {
  Beginning out = beginning();
  out.load = [one = images](const DataRequest&) mutable {
    one.classes = std::max(one.classes, 1);
    return Splits{one, one};
  };
  return out;
}

void check_output(const Trained& trained, const char* flag, const std::string& path) {
  std::error_code ignored;  // one of them is not there
  RT_CHECK_AS(UsageError, !std::filesystem::equivalent(path, trained.weights, ignored), "--", flag, " ", path,
              ": would replace the weights that ", trained.command, " reads; choose another file");
  check_can_write(path);
}

void load_trained(const Trained& trained, const Task& task, bool features) {
  const std::string last =
      features ? classifier(*task.model, task.model_name).last_layer() : last_layer_of(*task.model);
  const char* const instead = trained.command == "export"
                                  ? "so that only the backbone can be exported: use --backbone"
                                  : "so that only the features can be tested: use --protocol knn or linear";
  if (!features) check_classes(task.data.train, trained.data, trained.weights, instead);
  const LoadedWeights loaded = load_whole(trained.weights, *task.model, last, trained.set);
  RT_CHECK_AS(UsageError, loaded.last_layer || features || loaded.outputs > 0, trained.weights, ": has no last layer '",
              last, "', ", instead);
  RT_CHECK_AS(UsageError, loaded.last_layer || features, trained.weights, ": its last layer '", last, "' has ",
              loaded.outputs, " classes, ", task.data.train.source, " has ", task.data.train.classes, ", ", instead);
  const bool unknown = !is_own(trained.header.metadata) && trained.data.mean.empty();
  if (unknown && !task.data.train.mean.empty() && trained.options.data.normalize == "dataset")
    log_warn(trained.weights, ": does not say how its images were normalised; here they are by ",
             normalisation_text(task.data.train), ", those of ", task.data.train.source,
             "; most weights of other programs need --normalize imagenet");
}

}  // namespace ringtape::cli
