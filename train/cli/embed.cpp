#include <fmt/core.h>

#include <cstdio>

#include "autograd/autocast.h"
#include "core/printable.h"
#include "core/registry.h"
#include "train/cli/common.h"
#include "train/cli/trained.h"
#include "train/data/files/encoded_images.h"
#include "train/evaluation/features.h"
#include "train/io/csv.h"
#include "train/io/file.h"
#include "train/io/json.h"
#include "train/io/npy.h"
#include "train/weights/weights.h"

namespace ringtape::cli {
namespace {

// A line for each image, in the order of the rows: its name as in a run's list of files.
std::string names_of(const Dataset& data) {
  RT_CHECK_AS(UsageError, data.encoded, "--files: the images of ", data.name,
              " are no files of their own; leave it out, their order is that of the data set");
  std::string out;
  for (int64_t i = 0; i < data.encoded->size(); ++i) out += printable(data.encoded->name(i)) + "\n";
  return out;
}

// A row for each image: the name of its file if it has one, its class if it is known, and its features.
std::string table_of(const Features& features, const Dataset& data) {
  std::string out = concat(data.encoded ? "file," : "", data.classes > 0 ? "class," : "");
  const int64_t columns = features.x.dim(1);
  for (int64_t i = 0; i < columns; ++i) out += concat(i > 0 ? "," : "", "f", i);
  const Tensor host = to(contiguous(features.x), Device{});
  for (int64_t row = 0; row < features.size(); ++row) {
    out += '\n';
    if (data.encoded) out += csv_cell(data.encoded->name(row)) + ",";
    if (data.classes > 0) out += csv_cell(data.class_names[size_t(data.labels.span<int64_t>()[size_t(row)])]) + ",";
    for (int64_t i = 0; i < columns; ++i)
      out += fmt::format("{}{}", i > 0 ? "," : "", host.span<float>()[size_t(row * columns + i)]);
  }
  return out + "\n";
}

// The files to be written, which are different ones; null: not asked for.
struct Outputs {
  const std::string *features, *labels, *files;
};
Outputs outputs(const Invocation& invocation) {
  const Outputs o{invocation.flag("out"), invocation.flag("labels"), invocation.flag("files")};
  RT_CHECK_AS(UsageError, o.features, "embed: needs --out FILE.npy or FILE.csv, the file for the features");
  RT_CHECK_AS(UsageError, !o.labels || *o.labels != *o.features, "--labels ", *o.features,
              ": is also --out; choose two files");
  RT_CHECK_AS(UsageError, !o.files || (*o.files != *o.features && !(o.labels && *o.files == *o.labels)), "--files ",
              *o.files, ": is also --", *o.files == *o.features ? "out" : "labels", "; choose two files");
  return o;
}

void report(const Outputs& outputs, const Tensor& x, const TrainOptions& o, const std::string& split,
            const std::string& name, const std::string& weights) {
  if (o.run.json) {
    Json line{{"out", *outputs.features},
              {"shape", {x.dim(0), x.dim(1)}},
              {"split", split},
              {"data", o.data.set.name},
              {"weights", weights}};
    if (outputs.labels) line["labels"] = *outputs.labels;
    if (outputs.files) line["files"] = *outputs.files;
    std::printf("%s\n", line.text().c_str());
  } else {
    std::printf("saved  %s, %s %s of the %s images of %s\n", outputs.features->c_str(), name_of(x.dtype()).data(),
                x.shape().str().c_str(), split.c_str(), name.c_str());
  }
}

int run_embed(const Invocation& invocation) {
  const auto [out, labels, files] = outputs(invocation);
  const std::string* const given = invocation.flag("split");
  std::string split = given ? *given : "test";
  const std::vector<std::string> splits = {"train", "test"};
  check_known("value", split, splits, "--split: ");
  Trained trained = find_trained(invocation, "embed");
  check_output(trained, "out", *out);
  if (labels) check_output(trained, "labels", *labels);
  if (files) check_output(trained, "files", *files);
  const auto set_up = [&] {
    trained.train = split == "train";
    return std::make_unique<RunSetup>(resolve(trained.options), trained.beginning());
  };
  auto made = set_up();
  if (!given && made->data.test.size() == 0) split = "train", made = set_up();
  RunSetup& task = *made;
  const TrainOptions& options = task.options;
  load_trained(trained, task, true);
  const Autocast autocast(compute_dtype(options.execution));
  const Dataset& data = split == "train" ? task.data.train : task.data.test;
  const std::string names = files ? names_of(data) : "";
  const Features features = embed(
      *task.model, [&](const Tensor& x) { return classifier(*task.model, options.model.name).features(x); }, data,
      all_samples(data),
      {.device = task.device, .workers = int(options.execution.workers), .progress = options.run.json ? "" : split});
  check_finite(concat(trained.weights, ": the features of the ", split, " images"), features.x);
  if (out->ends_with(".csv")) write_file(*out, table_of(features, data));
  else write_npy(*out, features.x);
  if (labels) write_npy(*labels, features.labels);
  if (files) write_file(*files, names);
  report({out, labels, files}, features.x, options, split, data.name, trained.weights);
  return 0;
}

}  // namespace

Command embed_command() {
  Command command;
  command.name = "embed";
  command.summary =
      "Writes the features of images (the input of the last layer of a trained network) as a NumPy or CSV file.";
  command.usage = "RUN|CHECKPOINT|FILE --out FILE.npy|FILE.csv [FLAGS]";
  command.examples = {"embed digits --out features.npy --labels labels.npy",
                      "embed digits --split train --out train.npy", "embed pets --data-dir photos --out photos.csv"};
  command.positionals = 1;
  command.flags = {
      {"Output", "out", "FILE",
       "file for the features in the data set's order: .npy, f32 (images, features), or .csv, with the names of the "
       "files and classes before them",
       ""},
      {"Output", "labels", "FILE", "also write the classes of the images to this file, i64 (images)", ""},
      {"Output", "files", "FILE", "also write the names of the images' files to this one, a line for each row", ""},
      {"Output", "split", "NAME", "which images: train (not augmented) or test", "test, or train if there are none"}};
  for (Flag& flag : option_flags(Use::load)) command.flags.push_back(std::move(flag));
  command.run = run_embed;
  return command;
}

}  // namespace ringtape::cli
