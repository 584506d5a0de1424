#include "train/cli/trained.h"

#include <cmath>
#include <filesystem>

#include "autograd/ops.h"
#include "autograd/tape.h"
#include "train/cli/common.h"
#include "train/exported.h"
#include "train/weights.h"

namespace ringtape::cli {
namespace {

namespace fs = std::filesystem;

// A run or a checkpoint is a folder, a run also a name below runs/; everything else is a file of weights.
std::string find_run(const std::string& target) {
  for (const std::string& folder : {target, "runs/" + target}) {
    std::error_code ignored;
    if (fs::is_directory(folder, ignored)) return folder;
  }
  return {};
}

// The settings the weights were trained with, from the run's config.toml or from what the file says of
// itself.
std::string find_weights(const std::string& target, TrainOptions& options) {
  const std::string run = find_run(target);
  if (run.empty()) {
    RT_CHECK_AS(IoError, fs::exists(target), "there is no run and no file '", target, "'");
    apply_metadata(options, read_safetensors(target).metadata, target);
    return target;
  }
  if (const std::string own = run + "/model.safetensors"; fs::exists(own)) {  // a checkpoint
    const std::string averaged = run + "/ema.safetensors", file = fs::exists(averaged) ? averaged : own;
    apply_metadata(options, read_safetensors(file).metadata, file);
    return file;
  }
  const std::string config = run + "/config.toml";
  RT_CHECK_AS(IoError, fs::exists(config), run, ": not a run: it has no config.toml");
  read_config(options, config);
  for (const bool backbone : {false, true})
    if (const std::string weights = concat(run, "/exported/", exported_name(backbone)); fs::exists(weights)) return weights;
  throw IoError(concat(run, ": has no exported/", exported_name(!options.method.empty()),
                       "; the training has not finished (its checkpoints can be tested: ", run, "/checkpoints/last)"));
}

}  // namespace

Trained find_trained(const Invocation& invocation, const std::string& command) {
  RT_CHECK_AS(UsageError, invocation.positionals.size() == 1, command, ": name a run, a checkpoint or a file of weights: ringtape ",
              command, " RUN|CHECKPOINT|FILE");
  Trained out;
  out.weights = find_weights(invocation.positionals[0], out.options);
  const TrainOptions defaults;
  out.options.weights.clear();                 // those it began with
  out.options.method.clear();                  // by which a backbone was trained
  out.options.device = defaults.device;        // of this machine, not of the one it was trained on
  out.options.threads = defaults.threads;
  out.options.limit_eval_batches = defaults.limit_eval_batches;  // a short training still gets a whole test
  apply_flags(out.options, invocation);
  out.options.val_size = 0;
  return out;
}

void check_finite(const std::string& what, const Tensor& x) {
  if (!is_float(x.dtype())) return;
  const NoGrad no_grad;
  const Tensor host = cast(contiguous(x).copy_to(Device{}), DType::f64);
  for (const double value : host.span<double>())
    RT_CHECK_AS(Error, std::isfinite(value), what, ": holds ", std::isnan(value) ? "NaN" : "infinite numbers",
                ", of which nothing can be made; the training went wrong, take an earlier checkpoint or train with a lower --lr");
}

bool load_trained(const Trained& trained, const Task& task, bool features) {
  const std::string last = classifier(*task.model, task.options.model).last_layer();
  const bool whole = load_backbone(trained.weights, *task.model, last);
  RT_CHECK_AS(UsageError, whole || features, trained.weights, ": has no last layer '", last,
              "', so that there are only features to test: --protocol knn or linear");
  for (const NamedTensor& t : whole ? weights_of(*task.model) : backbone_of(*task.model, last))
    check_finite(concat(trained.weights, ": tensor '", t.name, "'"), t.tensor);
  return whole;
}

}  // namespace ringtape::cli
