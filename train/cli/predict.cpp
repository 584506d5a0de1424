#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <numeric>
#include <span>

#include "autograd/create.h"
#include "autograd/ops.h"
#include "core/log.h"
#include "core/parallel.h"
#include "core/printable.h"
#include "train/cli/common.h"
#include "train/cli/trained.h"
#include "train/data/image/image_file.h"
#include "train/evaluation/features.h"
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

// The files as images such as the network was trained on, u8 (N, H, W, C), with labels of 0. What cannot be read is
// logged, and `paths` loses it.
Dataset images_of(std::vector<std::string>& paths, const TrainedOn& known) {
  const int64_t h = known.image[0], w = known.image[1], c = known.image[2], bytes = h * w * c;
  std::vector<uint8_t> pixels(paths.size() * size_t(bytes));
  std::vector<std::string> errors(paths.size());
  parallel_for(int64_t(paths.size()), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) try {
        const fs::file_type type = type_at(paths[size_t(i)]);
        RT_CHECK_AS(IoError, type == fs::file_type::regular, paths[size_t(i)], ": not a file");
        copy_pixels(read_image_as(paths[size_t(i)], {h, w}, known.reading), c, pixels.data() + i * bytes);
      } catch (const Error& e) {
        errors[size_t(i)] = e.what();
      }
  });
  size_t good = 0;
  for (size_t i = 0; i < paths.size(); ++i) {
    if (!errors[i].empty()) {
      log_warn(errors[i]);
      continue;
    }
    std::copy_n(pixels.data() + i * size_t(bytes), bytes, pixels.data() + good * size_t(bytes));
    paths[good++] = paths[i];
  }
  paths.resize(good);
  pixels.resize(good * size_t(bytes));
  return {.name = "images",
          .source = "the command line",
          .images = from_host(pixels, {int64_t(good), h, w, c}),
          .labels = zeros({int64_t(paths.size())}, DType::i64),
          .classes = int(known.class_names.size()),
          .mean = known.mean,
          .deviation = known.deviation,
          .class_names = known.class_names};
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

void print(Format format, const std::string& path, std::span<const double> probabilities,
           const std::vector<size_t>& best, const std::vector<std::string>& names) {
  Json list = Json::list();
  std::string line = format == Format::csv ? csv_cell(path) : printable(path);
  for (const size_t i : best) {
    const double p = probabilities[i];
    if (format == Format::text) line += fmt::format("  {} {:.2f} %", printable(names[i]), 100 * p);
    if (format == Format::csv) line += concat(",", csv_cell(names[i]), ",", p);
    if (format == Format::json) list.push_back({{"class", names[i]}, {"probability", p}});
  }
  if (format == Format::json) line = Json{{"image", path}, {"top", list}}.text();
  std::printf("%s\n", line.c_str());
}

// A line for each image, from the logits (N, classes) of the network.
void print_all(Format format, const std::vector<std::string>& paths, const Tensor& logits, size_t top,
               const std::vector<std::string>& names) {
  const Tensor probabilities = softmax(cast(logits, DType::f64));
  for (size_t i = 0; i < paths.size(); ++i) {
    const std::span<const double> row(probabilities.data<double>() + i * names.size(), names.size());
    RT_CHECK_AS(Error, std::all_of(row.begin(), row.end(), [](double x) { return std::isfinite(x); }), paths[i],
                ": the outputs are not finite");
    std::vector<size_t> best(row.size());
    std::iota(best.begin(), best.end(), 0);
    std::stable_sort(best.begin(), best.end(), [&](size_t a, size_t b) { return row[a] > row[b]; });
    best.resize(top);
    print(format, paths[i], row, best, names);
  }
}

void check_knows(const Trained& trained) {
  const TrainedOn& known = trained.data;
  const std::string& weights = trained.weights;
  const char* const exported =
      is_own(trained.header.metadata)
          ? "`ringtape export RUN --out FILE`"
          : "`ringtape export FILE --model NAME --data imagefolder --data-dir DIR --image-size N --out "
            "NEW.safetensors`, with the images that it was trained on,";
  RT_CHECK_AS(UsageError, known.image.empty() || !known.class_names.empty(), weights,
              ": knows no classes; train a last layer with images that have labels: ringtape train --weights ", weights,
              "; ringtape embed writes features");
  RT_CHECK_AS(UsageError, !known.image.empty() && !known.class_names.empty() && !known.mean.empty(), weights,
              ": does not say of which size its images were, how they were normalised, or what its classes are; ",
              exported, " writes a file that does");
  RT_CHECK_AS(UsageError, known.image[2] == 1 || known.image[2] == 3, weights, ": was trained on images of ",
              known.image[2], " channels; files are read as 1 or 3");
}

int run_predict(const Invocation& invocation) {
  RT_CHECK_AS(UsageError, invocation.positionals.size() >= 2,
              "predict: name a run, a checkpoint or a file of weights, then images or folders of them: ringtape "
              "predict RUN|CHECKPOINT|FILE IMAGE...");
  Invocation of_weights = invocation;
  of_weights.positionals.resize(1);
  const Trained trained = find_trained(of_weights, "predict");
  const TrainedOn& known = trained.data;
  check_knows(trained);
  const Format format = format_of(invocation.has("csv"), trained.options.run.json);
  const auto classes = int64_t(known.class_names.size());
  const auto top = size_t(std::min(number_flag<int64_t>(invocation, "top", 1, 1'000'000, 5), classes));
  const std::vector<std::string> paths =
      find_images({invocation.positionals.begin() + 1, invocation.positionals.end()});
  std::vector<std::string> batch;  // the paths of the images at hand
  const auto read = [&](size_t begin) {
    const size_t end = std::min(begin + size_t(kEvalBatch), paths.size());
    batch.assign(paths.begin() + std::ptrdiff_t(begin), paths.begin() + std::ptrdiff_t(end));
    return images_of(batch, known);
  };
  Dataset images = read(0);
  Beginning beginning = trained.beginning();
  beginning.load = [&](const DataRequest&) { return Splits{images, images}; };
  const RunSetup task(resolve(trained.options), beginning);
  load_trained(trained, task);
  if (format == Format::csv) print_head(top);
  size_t read_well = 0;
  for (size_t at = 0; at < paths.size(); at += size_t(kEvalBatch)) {
    if (at > 0) images = read(at);
    read_well += batch.size();
    if (batch.empty()) continue;
    Tensors logits;
    evaluate(task, images, all_samples(images), "images", eval_options(task.options), &logits);
    print_all(format, batch, concat(logits), top, known.class_names);
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
    if (((flag.group == "Execution" || flag.group == "Run") && flag.name != "seed") || flag.name == "weights-key")
      command.flags.push_back(std::move(flag));
  command.run = run_predict;
  return command;
}

}  // namespace ringtape::cli
