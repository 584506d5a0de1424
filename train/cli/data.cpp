#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "core/printable.h"
#include "train/cli/common.h"
#include "train/data/dataset.h"
#include "train/data/image/png.h"
#include "train/data/sets/download.h"
#include "train/evaluation/contact_sheet.h"
#include "train/io/file.h"
#include "train/io/hash.h"
#include "train/io/json.h"
#include "train/io/look.h"

namespace ringtape::cli {
namespace {

const DatasetEntry& wanted_set(const Invocation& invocation, const char* command) {
  RT_CHECK_AS(UsageError, invocation.positionals.size() == 1, "data ", command, ": name a data set: ringtape data ",
              command, " NAME");
  return find_dataset(invocation.positionals[0]);
}

TrainOptions data_options(const DatasetEntry& entry, const Invocation& invocation) {
  TrainOptions o;
  o.data.set.name = entry.name;
  apply_flags(o, invocation);
  return o;
}

Splits load(const DatasetEntry& entry, const TrainOptions& o, const Invocation& invocation, bool check = false) {
  return entry.load({.dir = o.data.dir,
                     .settings = o.data.set.chosen(),
                     .seed = uint64_t(o.execution.seed),
                     .progress = !invocation.has("json"),
                     .labels = false,
                     .check = check});
}

// What a training makes of images, as the flags say: with labels or, if they name a method, without.
LoaderConfig shown_loading(const TrainOptions& o) {
  LoaderConfig out{.seed = uint64_t(o.execution.seed)};
  out.transforms = make_transforms(o.transforms);
  if (o.self_supervised()) out.views = views_of(o.views);
  else out.augmentation = o.augmentation, out.changes = changes_of(o.changes), out.changes.mixing = {};
  return out;
}

void write_sheet(const Dataset& data, const TrainOptions& o, const std::string& path) {
  constexpr int64_t kRows = 8, kColumns = 6;
  check_can_write(path);
  const NoGrad no_grad;
  write_file(path, encode_png(contact_sheet(data, shown_loading(o), kRows, kColumns)));
}

// The flags of data sets.
std::vector<Flag> data_flags() {
  std::vector<Flag> out;
  for (Flag& flag : option_flags(Use::evaluate))
    if (flag.kind == "data" || flag.name == "data-dir" || flag.name == "seed") {
      if (flag.owner.empty()) flag.group = "Data";
      flag.kind.clear(), flag.owner.clear();                                         // the argument names the set
      const auto same = [&](const Flag& other) { return other.name == flag.name; };  // of another data set
      if (std::ranges::none_of(out, same)) out.push_back(std::move(flag));
    }
  return out;
}

Json described(const Dataset& set) {
  const Shape s = set.image();
  const bool kept = !set.is_encoded() && set.size() > 0;  // else that of the training images, of some of them
  const PixelStatistics pixels = kept ? pixel_statistics(set.images) : PixelStatistics{set.mean, set.deviation};
  Json out{
      {"images", set.size()}, {"shape", {s[0], s[1], s[2]}}, {"mean", pixels.mean}, {"deviation", pixels.deviation}};
  if (set.classes == 0) return out;
  std::vector<int64_t> count(size_t(set.classes));
  for (int64_t label : set.labels.span<int64_t>()) ++count[size_t(label)];
  const auto [least, most] = std::ranges::minmax(count);
  out["per_class"] = {least, most};
  return out;
}

std::string four_digits(const Json& numbers) {
  std::string out;
  for (const auto& x : numbers) out += fmt::format("{}{:.4f}", out.empty() ? "" : " ", x.get<double>());
  return out;
}

void print_split(const char* split, const Json& d) {
  const auto images = d["images"].get<int64_t>();
  if (images == 0) return void(std::printf("%-10s no images\n", split));
  const auto count = [&](size_t i) { return with_commas(d["per_class"][i].get<int64_t>()); };
  const auto side = [&](size_t i) { return d["shape"][i].get<int64_t>(); };
  const std::string classes = d.contains("per_class") ? concat(count(0), " to ", count(1), " per class") : "no labels";
  const std::string line =
      fmt::format("{:<10} {} images of {}x{}x{}, {}, mean {}, deviation {}\n", split, with_commas(images), side(0),
                  side(1), side(2), classes, four_digits(d["mean"]), four_digits(d["deviation"]));
  std::fputs(line.c_str(), stdout);
}

int run_info(const Invocation& invocation) {
  const DatasetEntry& entry = wanted_set(invocation, "info");
  const TrainOptions options = data_options(entry, invocation);
  const Splits data = load(entry, options, invocation);
  Json out{{"name", entry.name},
           {"source", data.train.source},
           {"train", described(data.train)},
           {"test", described(data.test)}};
  if (data.val) out["val"] = described(*data.val);
  out["normalisation"] = {{"mean", data.train.mean}, {"deviation", data.train.deviation}};
  out["classes"] = data.train.class_names;
  out["notes"] = data.notes;
  const std::string* const sheet = invocation.flag("sheet");
  if (sheet) write_sheet(data.train, options, *sheet), out["sheet"] = *sheet;
  if (invocation.has("json")) {
    std::printf("%s\n", out.text().c_str());
    return 0;
  }
  std::printf("%-10s %s\n%-10s %s\n", entry.name, entry.summary, "from", printable(data.train.source).c_str());
  for (const char* split : {"train", "val", "test"})
    if (out.contains(split)) print_split(split, out[split]);
  std::printf("%-10s mean %s, deviation %s\n", "normalised", four_digits(out["normalisation"]["mean"]).c_str(),
              four_digits(out["normalisation"]["deviation"]).c_str());
  std::string names;
  for (const std::string& name : data.train.class_names) names += ' ' + printable(name);
  if (!names.empty()) std::printf("%-10s %zu:%s\n", "classes", data.train.class_names.size(), names.c_str());
  for (const std::string& note : data.notes) std::printf("%-10s %s\n", "note", printable(note).c_str());
  if (sheet) std::printf("%-10s %s: images as they are, then as a training gets them\n", "sheet", sheet->c_str());
  return 0;
}

// The path of a published file, where `data download` puts it or in the folder itself; empty if it is in neither.
std::string found_at(const PublishedFile& file, const std::string& dir) {
  namespace fs = std::filesystem;
  for (const std::string& path : {place_of(file, dir), (fs::path(dir) / file.name).string()})
    if (is_there(path)) return path;
  return {};
}

int run_verify(const Invocation& invocation) {
  const DatasetEntry& entry = wanted_set(invocation, "verify");
  const TrainOptions o = data_options(entry, invocation);
  const Splits data = load(entry, o, invocation, true);  // checks sizes, magic numbers, labels and images
  for (const DamagedImage& image : data.damaged) std::printf("FAILED  %s\n", printable(image.message).c_str());
  bool all = data.damaged.empty();
  for (const PublishedFile& file : published_files()) {
    if (file.set != std::string(entry.name)) continue;
    const std::string path = found_at(file, data_root({.dir = o.data.dir}));
    if (path.empty()) continue;
    const std::string sha256 = sha256_of(path);
    const bool same = sha256 == file.sha256,
               packed_anew = !same && *file.unpacked_sha256 && sha256_of_unpacked(path) == file.unpacked_sha256;
    all = all && (same || packed_anew);
    std::printf("%s  %s: sha256 %s%s\n", same || packed_anew ? "ok    " : "FAILED", path.c_str(), sha256.c_str(),
                same          ? ", as published"
                : packed_anew ? ", packed again: its content is as published"
                              : concat("; expected ", file.sha256).c_str());
  }
  for (const auto& [split, set] : {std::pair{"training", &data.train}, {"test", &data.test}})
    std::printf("ok      %s %s images in %s, %s\n", with_commas(set->size()).c_str(), split, set->source.c_str(),
                set->classes > 0 ? concat("with labels from 0 to ", set->classes - 1).c_str() : "without labels");
  return all ? 0 : 1;
}

int run_download(const Invocation& invocation) {
  const DatasetEntry& entry = wanted_set(invocation, "download");
  RT_CHECK_AS(UsageError, is_published(entry.name), "data download ", entry.name, ": there is nothing to download; ",
              entry.generated ? "it is generated" : "name a folder of your own with --data-dir");
  const TrainOptions o = data_options(entry, invocation);
  const std::string dir = data_root({.dir = o.data.dir}), *from = invocation.flag("from");
  for (const PublishedFile& file : published_files()) {
    if (file.set != std::string(entry.name)) continue;
    const bool fetched = download(file, dir, from ? *from : "", ::isatty(STDERR_FILENO));
    std::printf("%s  %s\n", fetched ? "fetched      " : "already there", place_of(file, dir).c_str());
    std::fflush(stdout);
  }
  const Splits data = entry.load({.dir = dir});
  std::printf("%s: %s + %s images in %s\n", entry.name, with_commas(data.train.size()).c_str(),
              with_commas(data.test.size()).c_str(), data.train.source.c_str());
  return 0;
}

}  // namespace

Command data_info_command() {
  Command command;
  command.name = "data info";
  command.summary = "Shows the content of a data set: images, classes, and the mean and deviation of its pixels.";
  command.usage = "NAME [FLAGS]";
  command.examples = {"data info cifar10 --data-dir ~/data",
                      "data info imagefolder --data-dir ~/photos --image-size 64 --sheet photos.png --jitter 0.8"};
  command.positionals = 1;
  command.flags = data_flags();
  command.flags.push_back({"Output", "json", "", "print one JSON object", ""});
  command.flags.push_back({"Output", "sheet", "FILE.png",
                           "draw some training images, and what a training with these settings makes of them; with "
                           "--method: what a pretraining does",
                           ""});
  for (const Use use : {Use::train, Use::pretrain})
    for (Flag& flag : option_flags(use)) {
      const bool drawn = flag.group == "Augmentation" || flag.group == "Views" || flag.name == "method";
      const auto same = [&](const Flag& other) { return other.name == flag.name; };
      if (drawn && std::ranges::none_of(command.flags, same)) command.flags.push_back(std::move(flag));
    }
  command.run = run_info;
  return command;
}

Command data_verify_command() {
  Command command;
  command.name = "data verify";
  command.summary = "Checks the files of a data set: sizes, formats, labels and published hashes.";
  command.usage = "NAME [FLAGS]";
  command.examples = {"data verify mnist --data-dir ~/data"};
  command.positionals = 1;
  command.flags = data_flags();
  command.run = run_verify;
  return command;
}

Command data_download_command() {
  Command command;
  command.name = "data download";
  command.summary = "Fetches a published data set with curl, checks its hashes and unpacks it.";
  command.usage = "NAME [FLAGS]";
  command.examples = {"data download cifar10 --data-dir ~/data",
                      "data download mnist --data-dir ~/data --from file:///mnt/mirror/mnist"};
  command.positionals = 1;
  for (Flag& flag : data_flags())
    if (flag.name == "data-dir") command.flags.push_back(std::move(flag));
  command.flags.push_back({"Data", "from", "URL", "folder of the files, instead of the published address", ""});
  command.run = run_download;
  return command;
}

}  // namespace ringtape::cli
