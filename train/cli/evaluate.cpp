#include <cstdio>
#include <filesystem>

#include "train/cli/common.h"
#include "train/io/json.h"
#include "train/io/safetensors.h"
#include "train/suggest.h"
#include "train/trainer.h"
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
  const std::string config = run + "/config.toml", weights = run + "/exported/model.safetensors";
  RT_CHECK_AS(IoError, fs::exists(config), run, ": not a run: it has no config.toml");
  RT_CHECK_AS(IoError, fs::exists(weights), run,
              ": has no exported/model.safetensors; the training has not finished (its checkpoints can be tested: ", run,
              "/checkpoints/last)");
  read_config(options, config);
  return weights;
}

int run(const Invocation& invocation) {
  RT_CHECK_AS(UsageError, invocation.positionals.size() == 1,
              "evaluate: name a run, a checkpoint or a file of weights: ringtape evaluate RUN|CHECKPOINT|FILE");
  const std::string* protocol = invocation.flag("protocol");
  const std::vector<std::string> protocols = {"test"};
  if (protocol && *protocol != "test")
    throw UsageError("--protocol: " + unknown("value", *protocol, protocols));
  TrainOptions options;
  const std::string weights = find_weights(invocation.positionals[0], options);
  const TrainOptions defaults;
  options.device = defaults.device;  // those of this machine, not of the one it was trained on
  options.threads = defaults.threads;
  options.limit_eval_batches = defaults.limit_eval_batches;  // a short training still gets a whole test
  apply_flags(options, invocation);
  options.train_size = std::min<int64_t>(options.train_size, 1);  // not needed here, so not generated
  options.val_size = 0;
  Task task(options);
  load_weights(weights, *task.model);
  const std::string* file = invocation.flag("logits");
  Tensors outputs;
  const Metrics m = evaluate(task, task.data.test, all_samples(task.data.test), "test", !options.json, file ? &outputs : nullptr);
  if (file) write_safetensors(*file, {{"logits", concat(outputs)}});
  if (options.json) {
    nlohmann::ordered_json line = nlohmann::ordered_json::parse(json_line(m));
    line.erase("epoch"), line.erase("step");
    line["images"] = m.images, line["data"] = options.data, line["weights"] = weights;
    std::printf("%s\n", json_text(line).c_str());
  } else {
    const std::string all = with_commas(task.data.test.size());
    const std::string tested =
        m.images < task.data.test.size() ? concat(with_commas(m.images), " of the ", all) : "the " + all;
    std::printf("%s on %s test images of %s\n%s\n", weights.c_str(), tested.c_str(),
                task.data.test.name.c_str(), metrics_text(m, 0).c_str());
  }
  return 0;
}

}  // namespace

Command evaluate_command() {
  Command command;
  command.name = "evaluate";
  command.summary = "Tests the weights of a finished run, of a checkpoint, or of a safetensors file.";
  command.usage = "RUN|CHECKPOINT|FILE [FLAGS]";
  command.examples = {"evaluate runs/digits", "evaluate digits --json", "evaluate runs/digits/checkpoints/best",
                      "evaluate model.safetensors --model mlp --data mnist --data-dir ~/mnist"};
  command.positionals = 1;
  command.flags = {{"Evaluation", "protocol", "NAME", "what to measure: test", "test"},
                   {"Evaluation", "logits", "FILE", "write the outputs too, (images, classes) in the set's order, as safetensors", ""}};
  for (Flag& flag : option_flags(Use::evaluate)) command.flags.push_back(std::move(flag));
  command.run = run;
  return command;
}

}  // namespace ringtape::cli
