#include "train/data/files/split_folders.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <map>
#include <set>
#include <utility>

#include "core/check.h"
#include "core/printable.h"
#include "train/data/dataset.h"
#include "train/io/look.h"

namespace ringtape {

namespace fs = std::filesystem;

void visit(Fields& f, SplitFolderOptions& o) {
  const auto folder = [&](const char* name, std::string& value, const char* help, const char* automatic) {
    f(name, value,
      {.help = help,
       .unit = "DIR",
       .automatic = automatic,
       .scope = FieldScope::rank,
       .may_change = true,
       .evaluates = true});
  };
  folder("train-dir", o.train, "folder of the training images, within --data-dir or elsewhere",
         "train or training if it is there, else --data-dir itself");
  folder("val-dir", o.val, "folder of the validation images",
         "val, valid, validation or dev if there is also test, else --val-size of the training images");
  folder("test-dir", o.test, "folder of the test images",
         "test or testing, else that of --val-dir, else every tenth training image, at least one of a class");
}

Split split_of(const std::string& word) {
  static const std::map<std::string, Split> words = {
      {"train", Split::train}, {"training", Split::train}, {"val", Split::val},   {"valid", Split::val},
      {"dev", Split::val},     {"validation", Split::val}, {"test", Split::test}, {"testing", Split::test}};
  std::string lower(word);
  std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return char(std::tolower(c)); });
  const auto found = words.find(lower);
  return found == words.end() ? Split::none : found->second;
}

namespace {

std::vector<std::string> folders_in(const std::string& path) {
  std::vector<std::string> out;
  for (const std::string& name : names_in(path))
    if (!name.starts_with('.') && is_folder_at((fs::path(path) / name).string())) out.push_back(name);
  return out;
}

std::string listed(const std::vector<std::string>& names) {
  constexpr size_t kShown = 6;
  std::string out;
  for (size_t i = 0; i < std::min(names.size(), kShown); ++i)
    out += concat(i == 0 ? "'" : i + 1 < names.size() ? ", '" : " and '", printable(names[i]), "'");
  return names.size() > kShown ? out + ", ..." : out;
}

// The folder of a split by its name; "" if there is none. Throws UsageError for several.
std::string folder_of(Split split, const std::string& dir, const std::vector<std::string>& folders, const char* flag) {
  std::vector<std::string> found;
  for (const std::string& name : folders)
    if (split_of(name) == split) found.push_back(name);
  RT_CHECK_AS(UsageError, found.size() < 2, dir, ": has ", listed(found), "; ", flag, " says which is meant");
  return found.empty() ? "" : (fs::path(dir) / found[0]).string();
}

// Parts of a data set whose images are not sorted into classes, in lower case.
bool is_part(const std::string& name) {
  static const std::set<std::string> parts = {"images", "image", "imgs",         "img",        "jpegimages", "photos",
                                              "labels", "masks", "annotations",  "annotation", "imagesets",  "mask",
                                              "label",  "boxes", "segmentation", "trimaps",    "xmls",       "json"};
  std::string lower(name);
  std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return char(std::tolower(c)); });
  return parts.contains(lower);
}

}  // namespace

SplitFolders split_folders(const SplitFolderOptions& o, const std::string& dir, const std::string& set) {
  RT_CHECK_AS(MissingData, is_folder_at(dir), set, ": no folder ", dir, "; --data-dir names it");
  const std::vector<std::string> folders = folders_in(dir);
  const auto named = [&](const char* flag, const std::string& name, Split split) -> std::string {
    if (name.empty()) return folder_of(split, dir, folders, flag);
    const std::string path = (fs::path(dir) / name).string();
    RT_CHECK_AS(UsageError, is_folder_at(path), flag, " ", name, ": no folder ", path);
    return path;
  };
  const bool plain = o.train.empty() && o.val.empty() && o.test.empty();
  const bool others = std::ranges::any_of(folders, [](const std::string& f) { return split_of(f) == Split::none; });
  const bool lone = std::ranges::none_of(
      folders, [](const std::string& f) { return split_of(f) == Split::val || split_of(f) == Split::test; });
  // Beside other classes, only "train" in lower case is no class.
  if (plain && others && lone && std::ranges::find(folders, "train") == folders.end()) return {dir, dir, "", ""};
  SplitFolders out{dir, named("--train-dir", o.train, Split::train), named("--val-dir", o.val, Split::val),
                   named("--test-dir", o.test, Split::test)};
  if (out.test.empty() && o.val.empty()) out.test = std::exchange(out.val, "");
  if (!out.train.empty()) return out;
  RT_CHECK_AS(UsageError, o.val.empty() && o.test.empty(), "--val-dir and --test-dir: need --train-dir, or ",
              (fs::path(dir) / "train").string());
  return {dir, dir, "", ""};
}

void check_class_folders(const std::string& root, bool labels) {
  const std::vector<std::string> folders = folders_in(root);
  if (folders.empty()) return;
  const char* const instead = "; expected train/CLASS/IMAGE with test/ or val/ next to train/, or CLASS/IMAGE";
  RT_CHECK_AS(FormatError,
              std::ranges::any_of(folders, [](const std::string& f) { return split_of(f) == Split::none; }), root,
              ": has only ", listed(folders), ", which are no classes", instead);
  RT_CHECK_AS(FormatError, !std::ranges::all_of(folders, is_part), root, ": has only ", listed(folders),
              ", which look like parts of a data set, not like classes", instead);
  fs::path within = root;
  std::vector<std::string> below = folders;
  while (below.size() == 1) below = folders_in(within /= below[0]);
  const bool around = std::ranges::any_of(below, [](const std::string& f) { return split_of(f) == Split::train; });
  RT_CHECK_AS(FormatError, folders.size() > 1 || below.empty() || !(around || labels), root, ": has only '",
              printable(folders[0]), "', with ", listed(below), " in it; use --data-dir ", within.string());
}

void check_test_folder(const SplitFolders& at, bool labels) {
  RT_CHECK_AS(IoError, !at.divided() || !at.test.empty() || !labels, at.root,
              at.val.empty() ? ": has train/ but neither test/ nor val/ next to it"
                             : ": no test images; --test-dir names their folder");
}

void hold_out_test_images(LabelledImages& train, LabelledImages& test) {
  constexpr int64_t kEachTest = 10;
  std::vector<int64_t> kept, held;
  std::map<int64_t, int64_t> size, number;  // of each class; of its images so far
  for (const int64_t label : train.labels) ++size[label];
  for (int64_t i = 0; i < train.size(); ++i) {
    const int64_t label = train.labels[size_t(i)], each = std::clamp<int64_t>(size[label], 2, kEachTest);
    (++number[label] % each == 0 ? held : kept).push_back(i);
  }
  test = chosen(train, held), train = chosen(train, kept);
}

}  // namespace ringtape
