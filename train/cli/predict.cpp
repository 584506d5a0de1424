#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <span>

#include "autograd/ops.h"
#include "core/log.h"
#include "core/parallel.h"
#include "core/printable.h"
#include "kernels/arithmetic.h"
#include "train/cli/common.h"
#include "train/cli/predictor_of.h"
#include "train/data/image/image_file.h"
#include "train/evaluation/features.h"
#include "train/inference/find_weights.h"
#include "train/inference/predictor.h"
#include "train/io/csv.h"
#include "train/io/json.h"
#include "train/io/look.h"

namespace ringtape::cli {
namespace {

namespace fs = std::filesystem;

// Adds the images in a folder and below it, by name. Links to folders are not followed.
void add_images(const fs::path& folder, std::vector<std::string>& out) {
  std::vector<std::string> names = names_in(folder);
  std::sort(names.begin(), names.end());
  for (const std::string& name : names) {
    const fs::path path = folder / name;
    if (name_type(path) == fs::file_type::directory) add_images(path, out);
    else if (is_image_path(name)) out.push_back(path);
  }
}

// The files of the command line, and those of its folders. Throws IoError for what is not there, UsageError for a
// folder without images.
std::vector<std::string> find_images(const std::vector<std::string>& arguments) {
  std::vector<std::string> out;
  for (const std::string& argument : arguments) {
    const fs::file_type type = type_at(argument);
    RT_CHECK_AS(IoError, type != fs::file_type::not_found, "there is no image and no folder '", argument, "'");
    const size_t before = out.size();
    if (type != fs::file_type::directory) out.push_back(argument);
    else add_images(argument, out);
    RT_CHECK_AS(UsageError, out.size() > before, argument, ": no images in this folder (", kImageEndings, ")");
  }
  return out;
}

// Those of the files that can be read, as pixels; what cannot is logged.
struct ReadImages {
  std::vector<std::string> paths;
  Tensors images;
};

ReadImages read_images(const Predictor& predictor, std::span<const std::string> paths) {
  Tensors images(paths.size());
  std::vector<std::string> errors(paths.size());
  parallel_for(int64_t(paths.size()), 1, [&](int64_t begin, int64_t end) {
    for (auto i = size_t(begin); i < size_t(end); ++i) try {
        images[i] = predictor.read(paths[i]);
      } catch (const Error& e) {
        errors[i] = e.what();
      }
  });
  ReadImages out;
  for (size_t i = 0; i < paths.size(); ++i) {
    if (!errors[i].empty()) log_warn(errors[i]);
    else out.paths.push_back(paths[i]), out.images.push_back(images[i]);
  }
  return out;
}

enum class Format : uint8_t { text, json, csv };

Format format_of(bool csv, bool json) {
  RT_CHECK_AS(UsageError, !csv || !json, "--csv: choose it or --json");
  return csv ? Format::csv : json ? Format::json : Format::text;
}

void print_head(size_t top) {
  std::string line = "image";
  for (size_t i = 1; i <= top; ++i) line += concat(",class_", i, ",probability_", i);
  std::printf("%s\n", line.c_str());
}

void print(Format format, const std::string& path, const Predictions& best) {
  std::string line = format == Format::csv ? csv_cell(path) : printable(path);
  for (const auto& [index, name, p] : best) {
    if (format == Format::text) line += fmt::format("  {} {:.2f} %", printable(name), 100 * p);
    if (format == Format::csv) line += concat(",", csv_cell(name), ",", p);
  }
  if (format == Format::json) line = Json{{"image", path}, {"top", to_json(best)}}.text();
  std::printf("%s\n", line.c_str());
}

int run_predict(const Invocation& invocation) {
  RT_CHECK_AS(UsageError, invocation.positionals.size() >= 2,
              "predict: name a run, a checkpoint or a file of weights, then images or folders of them: ringtape "
              "predict RUN|CHECKPOINT|FILE IMAGE...");
  const Format format = format_of(invocation.has("csv"), invocation.has("json"));
  const Predictor predictor = predictor_of(invocation);
  const auto classes = int64_t(predictor.classes().size());
  const auto top = std::min(number_flag<int64_t>(invocation, "top", 1, 1'000'000, 5), classes);
  const std::vector<std::string> paths =
      find_images({invocation.positionals.begin() + 1, invocation.positionals.end()});
  if (format == Format::csv) print_head(size_t(top));
  size_t read_well = 0;
  const auto each = size_t(eval_batch(predictor.image_shape()));
  for (size_t at = 0; at < paths.size(); at += each) {
    const ReadImages batch = read_images(predictor, std::span(paths).subspan(at, std::min(each, paths.size() - at)));
    if (batch.images.empty()) continue;
    const std::vector<Predictions> all = predictor(concat(batch.images), top);
    for (size_t i = 0; i < all.size(); ++i) print(format, batch.paths[i], all[i]);
    read_well += all.size();
  }
  RT_CHECK_AS(Error, read_well == paths.size(), "predict: ", paths.size() - read_well, " of ", paths.size(),
              " images cannot be read");
  return 0;
}

}  // namespace

Command predict_command() {
  Command command;
  command.name = "predict";
  command.summary = "Says of which classes image files are, by trained weights.";
  command.usage = "RUN|CHECKPOINT|FILE IMAGE|FOLDER... [FLAGS]";
  command.examples = {"predict digits seven.png", "predict runs/pets holiday/ --top 1 --csv",
                      "predict model.safetensors *.jpg --json"};
  command.positionals = std::numeric_limits<size_t>::max();
  command.flags = {{"Output", "top", "N", "number of classes printed for each image, the likeliest first", "5"},
                   {"Output", "csv", "", "print a table of comma-separated values", ""}};
  for (Flag& flag : option_flags(Use::evaluate))
    if (flag.group == "Run") command.flags.push_back(std::move(flag));
  for (Flag& flag : predictor_flags()) command.flags.push_back(std::move(flag));
  command.run = run_predict;
  return command;
}

}  // namespace ringtape::cli
