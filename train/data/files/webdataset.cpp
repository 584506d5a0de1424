#include "train/data/files/webdataset.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <sstream>

#include "core/parallel.h"
#include "core/printable.h"
#include "train/data/files/tar_index.h"
#include "train/io/file.h"
#include "train/io/look.h"

namespace ringtape {
namespace {

namespace fs = std::filesystem;

constexpr const char* kClassesFile = "classes.txt";
constexpr int64_t kMaxClasses = 1'000'000;

// The name of an archive without its compression, such as a.tar of a.tar.gz or a.tgz; "" for any other.
std::string without_compression(const std::string& name) {
  for (const char* end : {".gz", ".zst", ".xz", ".bz2"})
    if (name.ends_with(concat(".tar", end))) return name.substr(0, name.rfind('.'));
  return name.ends_with(".tgz") ? name.substr(0, name.size() - 3) + "tar" : "";
}

// The archives of a folder. Throws MissingData if it has none, or one only compressed.
std::vector<std::string> archives_in(const std::string& folder, const char* expected) {
  std::vector<std::string> out;
  const std::vector<std::string> names = names_in(folder);
  for (const std::string& name : names) {
    if (name.starts_with('.')) continue;
    if (name.ends_with(".tar")) out.push_back((fs::path(folder) / name).string());
    const std::string unpacked = without_compression(name);
    RT_CHECK_AS(MissingData, unpacked.empty() || std::find(names.begin(), names.end(), unpacked) != names.end(),
                "webdataset: ", (fs::path(folder) / name).string(), " is compressed; unpack it, so that there is ",
                unpacked);
  }
  RT_CHECK_AS(MissingData, !out.empty(), "webdataset: no .tar files in ", folder, expected);
  return out;
}

struct Archives {
  std::vector<std::string> train, val, test;
};

// The split that a word of a name says; words are of letters alone. Test counts before val.
Split split_in(const std::string& name) {
  Split out = Split::none;
  const auto is_letter = [](unsigned char c) { return std::isalpha(c) != 0; };
  for (auto at = name.begin(); at != name.end();) {
    const auto begin = std::find_if(at, name.end(), is_letter);
    at = std::find_if_not(begin, name.end(), is_letter);
    out = std::max(out, split_of(std::string(begin, at)));
  }
  return out;
}

Archives archives_of(const SplitFolders& at) {
  const auto of = [](const std::string& folder) {
    return folder.empty() ? std::vector<std::string>() : archives_in(folder, "; fill this folder, or remove it");
  };
  if (at.divided()) return {of(at.train), of(at.val), of(at.test)};
  Archives out;
  for (const std::string& path :
       archives_in(at.root, "; expected DIR/train/*.tar, with test/ or val/ next to it, or DIR/*.tar")) {
    const std::string name = fs::path(path).filename().string();
    const Split split = split_in(name);
    (split == Split::test ? out.test : split == Split::val ? out.val : out.train).push_back(path);
  }
  if (out.test.empty()) out.test.swap(out.val);
  return out;
}

// Members that are not read, and one that is no image only because of dots in its name.
struct Unused {
  int64_t members = 0;
  std::string dotted = {};

  void add(const Unused& other) {
    members += other.members;
    if (dotted.empty()) dotted = other.dotted;
  }
  std::string about_dots() const {
    if (dotted.empty()) return "";
    return concat("; the key of '", printable(dotted), "' ends at its first dot, so it is no image");
  }
  std::string text() const {
    return concat(with_commas(members), " members of archives that are neither images nor labels", about_dots());
  }
};

// One archive: its images, with their places, and labels, -1 for none.
struct Shard {
  std::vector<TarMember> images;
  std::vector<int64_t> labels;
  Unused unused;
};

Shard read_shard(const std::string& path) {
  const TarIndex index = index_tar(path);
  const TarSamples found = tar_samples(index, path);
  Shard out;
  InputFile file(path);
  for (const TarSample& sample : found.samples) {
    out.images.push_back(index.members[size_t(sample.image)]);
    if (sample.label < 0) {
      out.labels.push_back(-1);
      continue;
    }
    const TarMember& label = index.members[size_t(sample.label)];
    out.labels.push_back(
        tar_label(label, file.read(uint64_t(label.offset), uint64_t(label.size)), concat(path, ":", label.name)));
    if (out.labels.back() < 0) ++out.unused.members;  // .json with something else
  }
  out.unused.add({found.unused + index.links + index.others, found.dotted});
  return out;
}

// The images of archives in their order. Counts what is left out.
LabelledImages read_shards(const std::vector<std::string>& paths, Unused& unused) {
  std::vector<Shard> shards(paths.size());
  parallel_for(int64_t(paths.size()), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) shards[size_t(i)] = read_shard(paths[size_t(i)]);
  });
  auto images = std::make_shared<ShardImages>(paths);
  LabelledImages out;
  for (size_t s = 0; s < shards.size(); ++s) {
    for (const auto& [name, offset, size] : shards[s].images) images->add(int64_t(s), name, offset, size);
    out.labels.insert(out.labels.end(), shards[s].labels.begin(), shards[s].labels.end());
    unused.add(shards[s].unused);
  }
  out.images = std::move(images);
  return out;
}

// Whether the images have labels. Throws FormatError if only some have.
bool has_labels(const LabelledImages& list) {
  const auto without = std::find(list.labels.begin(), list.labels.end(), -1);
  const bool all = without == list.labels.end();
  const bool none = std::all_of(list.labels.begin(), list.labels.end(), [](int64_t label) { return label < 0; });
  RT_CHECK_AS(FormatError, all || none, list.images->path(without - list.labels.begin()),
              ": has no label (.cls, or .json with \"label\"), others have one");
  return all;
}

// The names of `number` classes.
std::vector<std::string> class_names(const std::string& folder, int64_t number) {
  std::vector<std::string> out;
  const std::string path = (fs::path(folder) / kClassesFile).string();
  if (!is_there(path)) {
    for (int64_t i = 0; i < number; ++i) out.push_back(std::to_string(i));
    return out;
  }
  std::istringstream lines(read_file(path));
  for (std::string line; std::getline(lines, line);) {
    if (line.ends_with('\r')) line.pop_back();
    out.push_back(line);
  }
  while (!out.empty() && out.back().empty()) out.pop_back();
  RT_CHECK_AS(FormatError, int64_t(out.size()) >= number, path, ": names ", out.size(), " classes, labels go up to ",
              number - 1);
  return out;
}

void check_labels(const LabelledImages& list, int64_t classes) {
  if (list.size() == 0) return;
  RT_CHECK_AS(FormatError, has_labels(list), list.images->path(0), ": has no label (.cls, or .json with \"label\")");
  for (int64_t i = 0; i < list.size(); ++i)
    RT_CHECK_AS(FormatError, list.labels[size_t(i)] < classes, list.images->path(i), ": has label ",
                list.labels[size_t(i)], ", training images have 0 to ", classes - 1);
}

}  // namespace

void visit(Fields& f, WebDatasetOptions& o) {
  visit(f, o.images);
  visit(f, o.folders);
}

Splits load_webdataset(const DataRequest& request) {
  const auto& options = request.settings.as<WebDatasetOptions>();
  const SplitFolders at = split_folders(options.folders, data_root(request), "webdataset");
  const Archives archives = archives_of(at);
  check_test_folder(at, request.labels);
  RT_CHECK_AS(MissingData, !archives.train.empty(), "webdataset: no archives of training images in ", at.train,
              ": all have val or test in their names");
  if (request.begins) request.begins();
  Unused unused;
  ImageLists lists{.name = "webdataset", .source = fs::absolute(at.root).lexically_normal().string()};
  lists.train = read_shards(archives.train, unused);
  RT_CHECK_AS(MissingData, lists.train.size() > 0, "webdataset: no images (", kImageEndings, ") in the archives of ",
              at.train, unused.about_dots());
  const bool labelled = has_labels(lists.train);
  RT_CHECK_AS(FormatError, labelled || !request.labels, lists.train.images->path(0),
              ": has no label (.cls, or .json with \"label\"); images without labels train with `ringtape pretrain`");
  bool has_zero = true;
  if (labelled) {
    const int64_t classes = *std::max_element(lists.train.labels.begin(), lists.train.labels.end()) + 1;
    RT_CHECK_AS(FormatError, classes <= kMaxClasses, at.train, ": labels go up to ", classes - 1, "; at most ",
                kMaxClasses, " classes are expected");
    lists.classes = class_names(at.root, classes);
    has_zero = std::find(lists.train.labels.begin(), lists.train.labels.end(), 0) != lists.train.labels.end();
    lists.test = read_shards(archives.test, unused);
    if (!archives.val.empty()) lists.val = read_shards(archives.val, unused), check_labels(*lists.val, classes);
    check_labels(lists.test, classes);
    if (archives.test.empty() && !at.divided()) hold_out_test_images(lists.train, lists.test);
    RT_CHECK_AS(FormatError, lists.test.size() > 0 || !request.labels, at.root,
                ": no test images, and no class has two images, of which one would be one");
  } else {
    std::fill(lists.train.labels.begin(), lists.train.labels.end(), 0);
    lists.test = chosen(lists.train, {});
  }
  Splits out = load_images(lists, options.images, request);
  if (!has_zero) out.notes.push_back(concat(at.root, ": no training image has label 0, from which labels count"));
  if (unused.members > 0) out.notes.insert(out.notes.begin(), concat(at.root, ": not read: ", unused.text()));
  return out;
}

}  // namespace ringtape
