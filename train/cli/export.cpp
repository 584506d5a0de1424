#include "train/onnx/export.h"

#include <cstdio>
#include <filesystem>

#include "train/cli/common.h"
#include "train/cli/trained.h"
#include "train/io/file.h"
#include "train/io/json.h"
#include "train/io/look.h"
#include "train/io/weights_file.h"
#include "train/loop/exported.h"
#include "train/weights/weights.h"

namespace ringtape::cli {
// The network, or its features, as a model of ONNX in bytes.
static std::string onnx_of(const Task& task, bool backbone, const std::map<std::string, std::string>& metadata) {
  task.model->train(false);
  const auto f = [&](const Tensor& x) {
    return backbone ? classifier(*task.model, task.model_name).features(x) : (*task.model)(x);
  };
  return onnx::model_of(*task.model, f, task.spec.image, backbone ? "features" : "logits", metadata);
}

// The text beside a file of weights, which says how PyTorch reads it.
static std::string readme_of(const std::filesystem::path& weights) {
  if (weights.extension() == ".safetensors") return std::filesystem::path(weights).replace_extension(".md").string();
  return weights.string() + ".md";
}

// `readme`: none of ONNX; `left_out`: the last layer, if that is.
static void print_saved(const std::string& out, const std::string& readme, const std::string& left_out) {
  if (readme.empty())
    std::printf("saved  %s: images (N, C, H, W), normalised -> %s\n", out.c_str(),
                left_out.empty() ? "logits" : "features");
  else
    std::printf("saved  %s%s, and how PyTorch reads it: %s\n", out.c_str(),
                left_out.empty() ? "" : concat(", without ", left_out).c_str(), readme.c_str());
}

static int run_export(const Invocation& invocation) {
  const std::string* const out = invocation.flag("out");
  const bool as_onnx = out && out->ends_with(".onnx");
  RT_CHECK_AS(UsageError, out && (as_onnx || is_weights_name(*out)),
              "export: needs --out FILE.safetensors, FILE.pth or FILE.onnx, the file for the weights",
              out ? concat(", got '", *out, "'") : "");
  Trained trained = find_trained(invocation, "export");
  trained.train = trained.test = false;
  const std::string name = std::filesystem::path(*out).filename().string(), readme = as_onnx ? "" : readme_of(*out);
  check_output(trained, "out", *out);
  const bool ours = as_onnx || !is_there(readme) || read_file(readme).find(concat('`', name, '`')) != std::string::npos;
  RT_CHECK_AS(UsageError, ours, readme, ": is in the way, a text that no export has written; choose another --out");
  const std::optional<Dataset> image = image_in_file(trained);
  const bool shown = image && !is_own(trained.header.metadata);  // by the tensors of another program's file
  const RunSetup task(resolve(trained.options), image ? trained.beginning_with(*image) : trained.beginning());
  const std::string last = last_layer_of(*task.model);
  const auto has = [&](const std::string& layer) { return trained.header.find(layer + ".weight") != nullptr; };
  const bool has_last = shown ? image->classes > 0 : last.empty() || has(last) || has("backbone." + last);
  const bool backbone = invocation.has("backbone") || !has_last;
  load_trained(trained, task, backbone);
  std::map<std::string, std::string> metadata;  // nothing is known of another program's training, but its images
  TrainedOn known;
  if (!shown) {
    metadata = weights_metadata(trained.options);
    known = is_own(trained.header.metadata) ? trained.data : trained_on(task.data.train);
    add_metadata(metadata, known);
  }
  if (as_onnx) {
    write_file(*out, onnx_of(task, backbone, metadata));
  } else {
    write_weights(*out, backbone ? backbone_of(*task.model, last) : weights_of(*task.model), metadata);
    write_file(readme, exported_readme(task, name, backbone));
  }
  Json line{{"out", *out}, {"backbone", backbone}, {"weights", trained.weights}};
  if (!as_onnx) line["readme"] = readme, line["python"] = exported_python(task, backbone);
  line["data"] = to_json(known);
  if (task.options.run.json) std::printf("%s\n", line.text().c_str());
  else print_saved(*out, readme, backbone ? last : "");
  return 0;
}

Command export_command() {
  Command command;
  command.name = "export";
  command.summary = "Writes trained weights with PyTorch's names, with or without the last layer, or a model of ONNX.";
  command.usage = "RUN|CHECKPOINT|FILE --out FILE.safetensors|FILE.pth|FILE.onnx [FLAGS]";
  command.examples = {"export digits --out digits.safetensors", "export digits --out digits.onnx",
                      "export runs/cifar/checkpoints/best --backbone --out backbone.safetensors"};
  command.positionals = 1;
  command.flags = {
      {"Output", "out", "FILE",
       "file for the weights, or FILE.onnx; a text next to weights says how PyTorch reads them", ""},
      {"Output", "backbone", "", "leave out the last layer: initial weights for other tasks (train --weights)", ""}};
  for (Flag& flag : option_flags(Use::load)) command.flags.push_back(std::move(flag));
  command.run = run_export;
  return command;
}

}  // namespace ringtape::cli
